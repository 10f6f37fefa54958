import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

const here = fileURLToPath(new URL('.', import.meta.url));
const client = fileURLToPath(new URL('../api/typescript/src/index.ts', import.meta.url));

/** The files below a folder, in order. */
function files(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

/** The hash of all that a build is made of; web_test.go computes the same. Types of the contract leave nothing in it. */
export function hashOfSources() {
  const names = ['index.html', 'package-lock.json', 'package.json', 'vite.config.mjs', ...['public', 'src'].flatMap((folder) => files(join(here, folder)).map((name) => name.slice(here.length)))].sort();
  const all = createHash('sha256');
  for (const name of names) all.update(`${name} ${createHash('sha256').update(readFileSync(join(here, name))).digest('hex')}\n`);
  all.update(`client ${createHash('sha256').update(readFileSync(client)).digest('hex')}\n`);
  return all.digest('hex');
}

/** Leaves each file compressed, as it is served, and the hash of the sources beside them. */
function packed() {
  return {
    name: 'packed',
    apply: 'build',
    closeBundle() {
      const out = join(here, 'dist');
      for (const name of files(out)) {
        writeFileSync(`${name}.gz`, gzipSync(readFileSync(name), { level: 9 }));
        rmSync(name);
      }
      writeFileSync(join(out, 'sources.sha256'), `${hashOfSources()}\n`);
    },
  };
}

export default defineConfig({
  base: '/console/',
  plugins: [react(), packed()],
  // The client of api/typescript is built from its source, with the packages of this folder.
  resolve: { alias: { 'openapi-fetch': join(here, 'node_modules/openapi-fetch') } },
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false }, license: { fileName: 'licenses.md' }, reportCompressedSize: false, emptyOutDir: true },
});
