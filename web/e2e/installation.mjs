// A real installation for the tests: the standalone program on stores of its own, and
// Debian's Chromium in front of it.

import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { promisify } from 'node:util';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createServer } from 'node:net';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('../../', import.meta.url));
export const pictures = join(root, '.data/console');
export const browserPath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => path && existsSync(path));

/** The reason to leave the tests out; false where there is none. */
export const without = browserPath ? false : 'no Chromium is installed and none can be: `apt-get install chromium` brings it, or set CHROMIUM to its path';

const freePort = () => new Promise((resolve, reject) => {
  const server = createServer();
  server.once('error', reject);
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

/** Starts an installation and waits until it says that it is ready. Where others sign its tokens, it has none. */
export async function install(env = {}) {
  const data = mkdtempSync(join(tmpdir(), 'console-e2e-'));
  mkdirSync(pictures, { recursive: true });
  const [port, echo] = [await freePort(), await freePort()];
  const program = spawn(join(root, '.data/bin/standalone'), {
    env: { ...process.env, DATA_DIR: data, HTTP_ADDR: `127.0.0.1:${port}`, ECHO_ADDR: `127.0.0.1:${echo}`, METRICS_ENABLED: 'false', LOG_LEVEL: 'warn', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  let complained = '';
  const link = await new Promise((resolve, reject) => {
    const limit = setTimeout(() => reject(new Error(`the installation is not ready after two minutes: ${said}${complained}`)), 120_000);
    program.stderr.on('data', (text) => { complained += text; });
    program.stdout.on('data', (text) => {
      said += text;
      const found = /http\S+\/console\/(#sign-in=\S+)?/.exec(said);
      if (found && said.includes('Ctrl-C')) {
        clearTimeout(limit);
        resolve(found[0]);
      }
    });
    program.once('exit', (code) => reject(new Error(`the installation ended with ${code}: ${said}${complained}`)));
  });
  const base = new URL(link).origin;
  const tokens = Object.fromEntries([...(existsSync(join(data, 'tokens')) ? readFileSync(join(data, 'tokens'), 'utf8') : '').matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [name, value]));
  return {
    base, link, tokens,
    /** Calls the API as an administrator. */
    async api(method, path, body, token = tokens.ADMIN_TOKEN, kind = 'application/json') {
      const response = await fetch(`${base}/api/v1/scheduler${path}`, {
        method, headers: { Authorization: `Bearer ${token}`, ...(body && { 'Content-Type': kind }) }, ...(body && { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
      return text ? JSON.parse(text) : null;
    },
    /** Fills it with jobs and a history, see cmd/seed. */
    seed: (...flags) => promisify(execFile)(join(root, '.data/bin/seed'), ['-data', data, ...flags]),
    async stop() {
      const ended = new Promise((resolve) => program.once('exit', resolve));
      program.kill('SIGINT');
      await ended;
      rmSync(data, { recursive: true, force: true });
    },
  };
}

/** What a browser reports of a definition that the API finds wrong while somebody types. */
const refusedCheck = /400.*\/validate$/;

/** A browser; it fails a test that leaves an error behind, or breaks the content policy. */
export async function openBrowser() {
  const browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
  return {
    close: () => browser.close(),
    async page(options = {}) {
      const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, timezoneId: 'Europe/Berlin', reducedMotion: 'reduce', ...options });
      const page = await context.newPage();
      page.setDefaultTimeout(30_000);
      const errors = [];
      page.on('pageerror', (error) => errors.push(`error: ${error.message}`));
      page.on('console', (message) => message.type() === 'error' && !refusedCheck.test(message.text() + message.location().url) && !page.expected?.test(message.text() + message.location().url) && errors.push(`console: ${message.text()} ${message.location().url}`));
      page.errors = errors;
      /** Signs in with a token by the form. */
      page.signIn = async (installation, token, path = '') => {
        await page.goto(`${installation.base}/console/${path}`);
        await page.getByLabel('Token or API key').fill(token);
        await page.getByRole('button', { name: 'Sign in' }).click();
        await page.getByRole('navigation', { name: 'Screens' }).waitFor();
      };
      return page;
    },
  };
}
