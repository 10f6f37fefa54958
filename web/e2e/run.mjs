// Runs the browser tests, two files at a time, on one installation: `npm run e2e [FILE…]`.
// What failed is told once more at the end, with its reason.

import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { install, seeding, without } from './installation.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const named = process.argv.slice(2);
const files = named.length > 0 ? named : readdirSync(here).filter((name) => name.endsWith('.test.mjs')).sort().map((name) => here + name);
const installation = without ? null : await install();
try {
  const before = new Date().toISOString(); // what is older is of the seed
  await installation?.seed(...seeding);
  const { base, link, data, secret } = installation ?? {};
  const tests = spawn(process.execPath, ['--test', '--test-concurrency=2', '--test-reporter=spec', ...files], { stdio: 'inherit', env: { ...process.env, ...(installation && { CONSOLE_E2E: JSON.stringify({ base, link, data, secret, before }) }) } });
  process.exitCode = await new Promise((resolve) => tests.once('exit', (code) => resolve(code ?? 1)));
} finally {
  await installation?.stop();
}
