// The client against the service itself, as `make run` starts it.

import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { work, type WorkerOptions } from '../example/worker.js';
import { createScheduler, items, must, SchedulerError, type Scheduler, type Schemas } from '../src/index.js';

const root = new URL('../../../../', import.meta.url).pathname;
const base = '/api/v1/scheduler';
let dir: string;
let service: ChildProcess | undefined;
let url: string;
let api: Scheduler;

before(async () => {
  dir = mkdtempSync(join(tmpdir(), 'scheduler-client-'));
  execFileSync('go', ['build', '-o', join(dir, 'standalone'), './cmd/standalone'], { cwd: root, stdio: 'inherit' });
  service = spawn(join(dir, 'standalone'), {
    cwd: dir,
    env: { ...process.env, HTTP_ADDR: '127.0.0.1:0', DATA_DIR: join(dir, 'data'), METRICS_ENABLED: 'false' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  let token: string | undefined;
  const hear = (chunk: Buffer): void => {
    said += chunk.toString();
  };
  service.stderr?.on('data', hear);
  for await (const chunk of service.stdout ?? []) {
    hear(chunk as Buffer);
    if (said.includes('Ctrl-C stops it')) break; // it is ready, and its tokens are in their file
  }
  const kept = readFileSync(join(dir, 'data', 'tokens'), 'utf8');
  url = /export API=(http:\S+)\/api\/v1\/scheduler/.exec(kept)?.[1] ?? '';
  token = /export ADMIN_TOKEN=(\S+)/.exec(kept)?.[1];
  assert.ok(url && token, `the service did not start:\n${said}`);
  api = createScheduler({ baseUrl: url, token });
});

after(async () => {
  const running = service;
  if (running?.exitCode === null) {
    const ended = new Promise((resolve) => running.once('exit', resolve));
    running.kill('SIGTERM');
    await ended;
  }
  rmSync(dir, { recursive: true, force: true });
});

const sleeper = (name: string): Schemas['JobSpec'] => ({
  name,
  trigger: 'manual',
  jobType: 'function',
  config: { modulePath: 'builtin', functionName: 'sleep', parameters: { durationMs: 1 } },
});

test('a job is made, run, read and deleted', async () => {
  const job = await must(api.POST(`${base}/jobs`, { body: sleeper('from TypeScript') }));
  const path = { id: job.id };
  const run = await must(api.POST(`${base}/jobs/{id}/trigger`, { params: { path } }));
  for (let tries = 0; ; tries++) {
    const seen = await must(api.GET(`${base}/executions/{id}`, { params: { path: { id: run.id } } }));
    if (seen.status === 'completed') break;
    assert.ok(tries < 4000, `still ${seen.status}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  await must(api.DELETE(`${base}/jobs/{id}`, { params: { path } }));
});

test('lists are read to their end', async () => {
  for (const n of [1, 2, 3]) await must(api.POST(`${base}/jobs`, { body: sleeper(`listed ${n}`) }));
  const names: string[] = [];
  const pages = items((cursor) => must(api.GET(`${base}/jobs`, { params: { query: { limit: 2, ...cursor } } })));
  for await (const job of pages) names.push(job.name);
  assert.deepEqual(names.filter((name) => name.startsWith('listed')), ['listed 3', 'listed 2', 'listed 1']);
});

test('a refusal says which field is wrong', async () => {
  const wrong = { ...sleeper('wrong'), trigger: null, cronExpression: '99 * * * * *' };
  await assert.rejects(must(api.POST(`${base}/jobs`, { body: wrong })), (error: unknown) => {
    assert.ok(error instanceof SchedulerError);
    assert.equal(error.status, 400);
    assert.equal(error.code, 'INVALID_CRON_EXPRESSION');
    assert.equal(error.details[0]?.field, 'cronExpression');
    assert.ok(error.requestId);
    return true;
  });
});

test('without a valid token nothing is answered', async () => {
  const stranger = createScheduler({ baseUrl: url, token: () => 'no-token' });
  const { response } = await stranger.GET(`${base}/jobs`);
  assert.equal(response.status, 401);
});

test('the contract is checked at compile time', () => {
  // @ts-expect-error the field is misspelt
  const misspelt: Schemas['JobSpec'] = { ...sleeper('x'), cronExpresion: '* * * * * *' };
  // @ts-expect-error a URL is no part of a function's config
  const mixed: Schemas['JobSpec'] = { name: 'x', jobType: 'function', config: { url: 'https://example.com/' } };
  const target = (job: Schemas['Job']): string => (job.jobType === 'http' ? job.config.url : job.jobType === 'function' ? job.config.functionName : job.jobType);
  // @ts-expect-error there is no such path
  const nowhere = (): unknown => api.GET(`${base}/jobz`);
  assert.ok([misspelt, mixed, target, nowhere].every(Boolean));
});

test('a worker of one\'s own runs executions', async () => {
  const key = await must(api.POST(`${base}/api-keys`, { body: { name: 'worker', scopes: ['workers:run'] } }));
  const stop = new AbortController();
  const parameters = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
  const functions: WorkerOptions['functions'] = {
    double: {
      parameters,
      run: async ({ parameters, idempotencyKey }, _signal, progress, print) => {
        await progress(50);
        await print('doubles', String(parameters?.['n']));
        return { doubled: Number(parameters?.['n']) * 2, idempotencyKey };
      },
    },
    refuse: { run: () => Promise.reject(new Error('not today')) },
    wait: { run: (_execution, signal) => new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('aborted')))) },
  };
  const ended = work({ baseUrl: url, token: key.key, name: 'from TypeScript', functions }, stop.signal);
  const until = async <T>(what: string, found: () => Promise<T | undefined>): Promise<T> => {
    for (let tries = 0; tries < 4000; tries++) {
      const value = await found();
      if (value !== undefined) return value;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    throw new Error(`never: ${what}`);
  };
  await until('it registers', async () => (await must(api.GET(`${base}/remote-workers`))).items[0]);
  const trigger = async (functionName: string, parameters?: Record<string, unknown>): Promise<string> => {
    const config = parameters ? { functionName, parameters } : { functionName };
    const job = await must(api.POST(`${base}/jobs`, { body: { name: functionName, trigger: 'manual', jobType: 'remote', config } }));
    return (await must(api.POST(`${base}/jobs/{id}/trigger`, { params: { path: { id: job.id } } }))).id;
  };
  const becomes = (id: string, status: string): Promise<Schemas['Execution']> =>
    until(status, async () => {
      const seen = await must(api.GET(`${base}/executions/{id}`, { params: { path: { id } } }));
      return seen.status === status ? seen : undefined;
    });
  const doubled = await becomes(await trigger('double', { n: 21 }), 'completed');
  assert.deepEqual(doubled.result, { doubled: 42, idempotencyKey: doubled.id });
  const logs = await must(api.GET(`${base}/executions/{id}/logs`, { params: { path: { id: doubled.id } } }));
  assert.deepEqual((logs as Schemas['LogPage']).items.map((line) => [line.number, line.stream, line.text]), [[1, 'stdout', 'doubles'], [2, 'stdout', '21']]);
  assert.equal((await becomes(await trigger('refuse'), 'failed')).errorMessage, 'not today');
  await assert.rejects(trigger('double', { n: 'many' }), (error: unknown) => error instanceof SchedulerError && error.details[0]?.field === 'config.parameters.n');
  const cancelled = await trigger('wait');
  await becomes(cancelled, 'running');
  await must(api.POST(`${base}/executions/{id}/cancel`, { params: { path: { id: cancelled } } }));
  await becomes(cancelled, 'cancelled');
  stop.abort();
  await ended;
  assert.deepEqual((await must(api.GET(`${base}/remote-workers`))).items, []);
});
