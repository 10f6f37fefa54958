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

  test('leads there and back to the screen that was asked for, and out again', async () => {
    const one = await page();
    await one.goto(`${installation.base}/console/jobs?status=paused`);
    await one.getByRole('link', { name: 'Sign in with your account' }).click();
    await one.getByRole('link', { name: 'I am Grace' }).click();
    await one.getByRole('navigation', { name: 'Screens' }).waitFor();
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
    await one.goto(`${installation.base}/console/`);
    await one.getByRole('link', { name: 'Sign in with your account' }).click();
    await one.getByRole('link', { name: 'I am Grace' }).click();
    await one.getByRole('navigation', { name: 'Screens' }).waitFor();
    const before = issuer.granted;
    issuer.lifetime = 300;
    const renewed = one.waitForResponse((response) => response.url().endsWith('/console/session') && issuer.granted > before);
    assert.equal((await renewed).status(), 200);
    await one.getByRole('link', { name: 'Jobs' }).click();
    await one.getByRole('heading', { name: 'Jobs' }).waitFor();
    assert.equal(await one.getByRole('dialog').count(), 0);
  });
});
