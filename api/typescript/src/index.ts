// The client of the scheduler's REST API. Paths, parameters, bodies and answers
// are typed by the contract (contract.ts is generated from openapi.yaml); the
// calls themselves are openapi-fetch's.

import createFetch, { type Client, type ClientOptions } from 'openapi-fetch';
import type { components, paths } from './contract.js';

export type { components, operations, paths } from './contract.js';

/** The named types of the contract: `Schemas['Job']`, `Schemas['Execution']`, ... */
export type Schemas = components['schemas'];

/** Calls by method and path: `api.GET('/api/v1/scheduler/jobs', { params: { query: { limit: 10 } } })`. */
export type Scheduler = Client<paths>;

export interface Options extends Omit<ClientOptions, 'baseUrl'> {
  /** Where the API is, without a path: `https://scheduler.example.com`. */
  baseUrl: string;
  /** A JWT or API key, or a function that is asked for one before each call. */
  token: string | (() => string | Promise<string>);
}

/** Makes a client that sends the token with each call. */
export function createScheduler({ token, ...options }: Options): Scheduler {
  const scheduler = createFetch<paths>(options);
  scheduler.use({
    async onRequest({ request }) {
      request.headers.set('Authorization', `Bearer ${typeof token === 'string' ? token : await token()}`);
      return request;
    },
  });
  return scheduler;
}

/** What the API answered instead of what was asked for. */
export class SchedulerError extends Error {
  /** The HTTP status. */
  readonly status: number;
  /** What a program decides on, such as `JOB_NOT_FOUND`; `UNKNOWN` where the answer was not the API's. */
  readonly code: string;
  /** Every field that is wrong, and why. */
  readonly details: Schemas['ErrorDetail'][];
  /** What to quote when reporting it. */
  readonly requestId: string | null;

  constructor(response: Response, body: unknown) {
    const error = isError(body) ? body.error : { code: 'UNKNOWN', message: `HTTP ${response.status}`, details: [] };
    super(error.message);
    this.name = 'SchedulerError';
    this.status = response.status;
    this.code = error.code;
    this.details = error.details;
    this.requestId = response.headers.get('X-Request-Id');
  }
}

function isError(body: unknown): body is Schemas['Error'] {
  return typeof body === 'object' && body !== null && 'error' in body && typeof body.error === 'object';
}

/**
 * The body of an answer, or a SchedulerError:
 * `const job = await must(api.GET('/api/v1/scheduler/jobs/{id}', { params: { path: { id } } }))`.
 */
export async function must<T>(
  call: Promise<{ data?: T; error?: unknown; response: Response }>,
): Promise<Exclude<T, undefined>> {
  const { data, error, response } = await call;
  if (!response.ok) throw new SchedulerError(response, error);
  return data as Exclude<T, undefined>;
}

/**
 * Every item of a list, page after page:
 * `for await (const job of items((cursor) => must(api.GET('/api/v1/scheduler/jobs', { params: { query: cursor } })))) { ... }`.
 */
export async function* items<T>(
  page: (query: { cursor?: string }) => Promise<{ items: T[]; hasMore: boolean; nextCursor?: string | null }>,
): AsyncGenerator<T, void, undefined> {
  let query: { cursor?: string } = {};
  for (;;) {
    const { items, hasMore, nextCursor } = await page(query);
    yield* items;
    if (!hasMore || !nextCursor) return;
    query = { cursor: nextCursor };
  }
}
