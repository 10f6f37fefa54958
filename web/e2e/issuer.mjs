// An OpenID Connect issuer with a page to sign in at, for the tests.

import { createHash, createSign, generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

const text = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** Starts one. Its access tokens are good for so many seconds. */
export async function startIssuer({ tenant, lifetime = 300 }) {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const codes = new Map();
  const issuer = { base: '', granted: 0, refresh: '', revoked: [], lifetime };
  const sign = (claims) => {
    const now = Math.floor(Date.now() / 1000);
    const body = `${text({ alg: 'RS256', typ: 'JWT', kid: 'one' })}.${text({ iss: issuer.base, sub: 'grace', iat: now, exp: now + issuer.lifetime, jti: randomUUID(), ...claims })}`;
    return `${body}.${createSign('RSA-SHA256').update(body).sign(privateKey, 'base64url')}`;
  };
  const grant = (nonce) => {
    issuer.granted++;
    issuer.refresh = randomUUID();
    return { token_type: 'Bearer', refresh_token: issuer.refresh, id_token: sign({ aud: 'console', nonce }), access_token: sign({ aud: 'scheduler', tenant_id: tenant, roles: ['admin'] }) };
  };
  const token = (form) => {
    if (form.get('grant_type') === 'refresh_token') return form.get('refresh_token') === issuer.refresh ? grant() : null;
    const asked = codes.get(form.get('code'));
    codes.delete(form.get('code'));
    const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
    return asked && asked.get('code_challenge') === challenge && asked.get('redirect_uri') === form.get('redirect_uri') && form.get('client_id') === 'console' ? grant(asked.get('nonce')) : null;
  };
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, issuer.base);
    const json = (status, body) => response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
    const page = (body) => response.writeHead(200, { 'Content-Type': 'text/html' }).end(`<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>Issuer</title>${body}`);
    let sent = '';
    for await (const part of request) sent += part;
    switch (url.pathname) {
      case '/.well-known/openid-configuration':
        return json(200, { issuer: issuer.base, authorization_endpoint: `${issuer.base}/authorize`, token_endpoint: `${issuer.base}/token`, revocation_endpoint: `${issuer.base}/revoke`, end_session_endpoint: `${issuer.base}/logout`, code_challenge_methods_supported: ['S256'] });
      case '/keys':
        return json(200, { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'one', use: 'sig' }] });
      case '/authorize': {
        const code = randomUUID();
        codes.set(code, url.searchParams);
        const back = (query) => `${url.searchParams.get('redirect_uri')}?${new URLSearchParams({ state: url.searchParams.get('state'), ...query })}`.replaceAll('&', '&amp;');
        return page(`<h1>Who are you?</h1><a href="${back({ code })}">I am Grace</a> <a href="${back({ error: 'access_denied' })}">Nobody</a>`);
      }
      case '/token': {
        const answer = token(new URLSearchParams(sent));
        return answer ? json(200, answer) : json(400, { error: 'invalid_grant' });
      }
      case '/revoke': {
        issuer.revoked.push(new URLSearchParams(sent).get('token'));
        if (issuer.revoked.at(-1) === issuer.refresh) issuer.refresh = '';
        return response.writeHead(200).end();
      }
      case '/logout':
        return page(`<h1>Signed out</h1><a href="${url.searchParams.get('post_logout_redirect_uri')}">Back</a>`);
      default:
        return response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  issuer.base = `http://127.0.0.1:${server.address().port}`;
  issuer.stop = () => new Promise((resolve) => { server.closeAllConnections(); server.close(resolve); });
  return issuer;
}
