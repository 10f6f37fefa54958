import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { after, afterEach, before, describe, test } from 'node:test';
import { install, openBrowser, without } from './installation.mjs';
import { startIssuer } from './issuer.mjs';

describe('sign-in at an issuer', { skip: without }, () => {
  let installation;
  let issuer;
  let browser;
  const opened = [];
  const page = async () => {
    const one = await browser.page();
    opened.push(one);
    return one;
  };
  before(async () => {
    issuer = await startIssuer({ tenant: randomUUID() });
    installation = await install({
      JWT_JWKS_URL: `${issuer.base}/keys`, JWT_ISSUER: issuer.base, JWT_AUDIENCE: 'scheduler', CURSOR_SECRET: randomBytes(48).toString('base64'),
      CONSOLE_OIDC_ISSUER: issuer.base, CONSOLE_OIDC_CLIENT_ID: 'console',
    });
    browser = await openBrowser();
  }, { timeout: 180_000 });
  after(async () => {
    await browser?.close();
    await installation?.stop();
    await issuer?.stop();
  });
  afterEach(async () => {
    for (const one of opened.splice(0)) {
      await one.context().close();
      assert.deepEqual(one.errors, [], 'the browser reported errors');
    }
  });

  /** Signs in at the issuer; again where it did not answer in time, as on a busy machine. */
  const signIn = async (one, path = '') => {
    const [grace, screens] = [one.getByRole('link', { name: 'I am Grace' }), one.getByRole('navigation', { name: 'Screens' })];
    const away = one.getByText('The issuer does not answer at present.');
    for (let tries = 1; ; tries++) {
      await one.goto(`${installation.base}/console/${path}`);
      await one.getByRole('link', { name: 'Sign in with your account' }).click();
      await grace.or(away).first().waitFor();
      if (await grace.isVisible()) {
        await grace.click();
        await screens.or(away).first().waitFor();
      }
      if (tries === 5 || await screens.isVisible()) return screens.waitFor();
    }
  };

  test('leads there and back to the screen that was asked for, and out again', async () => {
    const one = await page();
    await signIn(one, 'jobs?status=paused');
    assert.match(one.url(), /\/console\/jobs\?.*paused/, 'the deep link is lost');
    await one.getByText('grace', { exact: true }).waitFor();
    await one.reload();
    await one.getByRole('navigation', { name: 'Screens' }).waitFor();
    assert.equal(await one.evaluate(() => JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie).then((all) => all.includes('eyJ')), false, 'a script can read the token where it is kept');
    await one.getByRole('button', { name: 'Sign out' }).click();
    await one.getByRole('heading', { name: 'Signed out' }).waitFor();
    await one.getByRole('link', { name: 'Back' }).click();
    await one.getByRole('link', { name: 'Sign in with your account' }).waitFor();
  });

  test('a server that restarts: the screen says so, keeps what was typed and goes on by itself, still signed in', async () => {
    const one = await page();
    one.expected = /ERR_|50[0-9]|Failed to fetch|400/;
    await signIn(one);
    const typing = await one.context().newPage();
    await typing.goto(`${installation.base}/console/jobs/new`);
    await typing.getByLabel('Name (required)').fill('typed before');
    await one.goto(`${installation.base}/console/workers`);
    await one.getByRole('region', { name: 'Lanes' }).waitFor();
    await installation.halt();
    await one.getByText('The service cannot be reached. The console tries again by itself.').first().waitFor();
    await one.getByRole('region', { name: 'Lanes' }).waitFor(); // as it was
    await typing.getByLabel('URL (required)').fill('http://127.0.0.1:1/');
    await typing.getByRole('button', { name: 'Create the job' }).click();
    await typing.getByText('The service cannot be reached.').first().waitFor();
    await installation.start();
    await one.getByRole('alert').first().waitFor({ state: 'detached' });
    await one.getByRole('region', { name: 'Workers' }).getByText('http').first().waitFor();
    assert.equal(await one.getByRole('dialog').count(), 0, 'it asks to sign in again');
    assert.equal(await typing.getByLabel('Name (required)').inputValue(), 'typed before');
    await typing.getByLabel('URL (required)').fill('https://example.com/');
    await typing.getByRole('button', { name: 'Create the job' }).click();
    await typing.getByRole('heading', { name: 'typed before', level: 1 }).waitFor();
  });

  test('a sign-out ends the refresh token at the issuer, and in the other tab', async () => {
    const one = await page();
    one.expected = /401/;
    await signIn(one);
    const refresh = issuer.refresh;
    assert.ok(refresh);
    const other = await one.context().newPage();
    await other.goto(`${installation.base}/console/jobs`);
    await other.getByRole('navigation', { name: 'Screens' }).waitFor();
    await one.getByRole('button', { name: 'Sign out' }).click();
    await one.getByRole('heading', { name: 'Signed out' }).waitFor();
    assert.equal(issuer.revoked.at(-1), refresh);
    await other.reload();
    await other.getByRole('link', { name: 'Sign in with your account' }).waitFor();
  });

  test('says in words why the issuer let nobody in', async () => {
    const one = await page();
    await one.goto(`${installation.base}/console/`);
    await one.getByRole('link', { name: 'Sign in with your account' }).click();
    await one.getByRole('link', { name: 'Nobody' }).click();
    await one.getByText('The issuer did not let you in.').waitFor();
    assert.equal(new URL(one.url()).hash, '');
    assert.equal(await one.getByLabel('Token or API key').count(), 1);
  });

  test('goes on with the next token before one ends', async () => {
    issuer.lifetime = 32; // of which the last 30 s are for renewing
    const one = await page();
    await signIn(one);
    const before = issuer.granted;
    issuer.lifetime = 300;
    const renewed = one.waitForResponse((response) => response.url().endsWith('/console/session') && issuer.granted > before && response.status() !== 503); // then it asks again
    assert.equal((await renewed).status(), 200);
    await one.getByRole('link', { name: 'Jobs' }).click();
    await one.getByRole('heading', { name: 'Jobs' }).waitFor();
    assert.equal(await one.getByRole('dialog').count(), 0);
  });
});
