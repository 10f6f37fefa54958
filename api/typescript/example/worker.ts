// A worker of a tenant's own: an example to copy. It claims executions over HTTP, runs the
// functions that it is given, and reports the end. It needs an API key with `workers:run`.

import { createScheduler, must, SchedulerError, type Scheduler, type Schemas } from '../src/index.js';

const base = '/api/v1/scheduler/remote-workers';

/** What an execution may call. `signal` is aborted when its end is asked for, or its time is up. */
export interface WorkerFunction {
  description?: string;
  /** The JSON schema of its parameters; left out, it takes any. */
  parameters?: Record<string, unknown>;
  run(execution: Schemas['RemoteExecution'], signal: AbortSignal, progress: (percent: number) => Promise<void>, print: (...lines: string[]) => Promise<void>): Promise<unknown>;
}

export interface WorkerOptions {
  baseUrl: string;
  token: string;
  name: string;
  slots?: number;
  functions: Record<string, WorkerFunction>;
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const is = (error: unknown, ...statuses: number[]): boolean => error instanceof SchedulerError && statuses.includes(error.status);

/** Runs executions until `stop` is aborted; then claims no more, finishes what runs, and deregisters. */
export async function work({ baseUrl, token, name, slots = 4, functions }: WorkerOptions, stop: AbortSignal): Promise<void> {
  const api = createScheduler({ baseUrl, token });
  const running = new Map<string, AbortController>(); // by the token of the attempt
  const runs = new Set<Promise<void>>();
  const register = (): Promise<Schemas['RemoteWorker']> =>
    must(
      api.POST(base, {
        body: {
          name,
          protocol: 1,
          slots,
          leaseSeconds: 10,
          functions: Object.entries(functions).map(([name, { description, parameters }]) => ({
            name,
            ...(description === undefined ? {} : { description }),
            ...(parameters === undefined ? {} : { parameters }),
          })),
        },
      }),
    );
  let worker = await register();
  let claimId = crypto.randomUUID(); // the same until a claim brings something: one whose answer was lost is repeated
  const beat = setInterval(() => void heartbeat(api, worker.id, running), worker.heartbeatSeconds * 1000);
  try {
    while (!stop.aborted) {
      if (runs.size >= slots) {
        await Promise.race(runs);
        continue;
      }
      try {
        const { executions } = await must(api.POST(`${base}/{id}/claim`, { params: { path: { id: worker.id } }, body: { most: Math.min(32, slots - runs.size), claimId } }));
        if (executions.length > 0) claimId = crypto.randomUUID();
        for (const execution of executions) {
          const run = execute(api, functions, execution, running).finally(() => runs.delete(run));
          runs.add(run);
        }
      } catch (error) {
        await sleep(1000);
        // The lease ran out. What runs goes on: its tokens are good.
        if (is(error, 404)) worker = await register().catch(() => worker);
      }
    }
    await Promise.all(runs);
    await must(api.DELETE(`${base}/{id}`, { params: { path: { id: worker.id } } }));
  } finally {
    clearInterval(beat);
  }
}

/** Says that the worker and what it runs go on, and ends what shall not. */
async function heartbeat(api: Scheduler, id: string, running: Map<string, AbortController>): Promise<void> {
  const tokens = [...running.keys()];
  try {
    const { attempts } = await must(api.POST(`${base}/{id}/heartbeat`, { params: { path: { id } }, body: { tokens } }));
    attempts.forEach((status, i) => {
      if (status !== 'running') running.get(tokens[i] ?? '')?.abort(new Error('the service asked for its end, or gave the attempt up'));
    });
  } catch {
    // The next one says it again; after a 404 the next claim registers again.
  }
}

async function execute(api: Scheduler, functions: Record<string, WorkerFunction>, execution: Schemas['RemoteExecution'], running: Map<string, AbortController>): Promise<void> {
  const path = { token: execution.token };
  const end = new AbortController();
  running.set(execution.token, end);
  const timer = setTimeout(() => end.abort(new Error('the time is up')), Math.min(execution.timeoutSeconds * 1000, 2 ** 31 - 1));
  let report: Schemas['CompletionReport'];
  try {
    const called = functions[execution.functionName];
    if (!called) throw new Error(`this worker has no function ${execution.functionName}`);
    // Progress and output are for people, and may be lost.
    const progress = async (percent: number): Promise<void> => {
      await api.POST('/callbacks/{token}/progress', { params: { path }, body: { progress: percent } }).catch(() => undefined);
    };
    let next = 1; // the number of the next line
    const print = async (...lines: string[]): Promise<void> => {
      const firstLine = next;
      next += lines.length;
      await api.POST('/callbacks/{token}/output', { params: { path }, body: { firstLine, lines: lines.map((text) => ({ text })) } }).catch(() => undefined);
    };
    const result = await called.run(execution, end.signal, progress, print);
    report = result === undefined ? {} : { result };
  } catch (error) {
    report = { error: { type: 'USER_ERROR', message: error instanceof Error && error.message ? error.message : String(error) } };
  } finally {
    clearTimeout(timer);
  }
  // The same report changes nothing twice, so it is repeated until it is answered.
  for (let tries = 0; tries < 20; tries++) {
    try {
      await must(api.POST('/callbacks/{token}/complete', { params: { path }, body: report }));
      break;
    } catch (error) {
      if (is(error, 404, 409)) break; // the attempt has ended otherwise
      if (is(error, 400, 413)) report = { error: { type: 'USER_ERROR', message: 'the end cannot be stored' } };
      await sleep(1000);
    }
  }
  running.delete(execution.token);
}
