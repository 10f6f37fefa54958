// Calls of the API by its typed client. A read that is repeated asks with the ETag
// of its last answer, so that an answer that did not change costs no body.

import { createScheduler, must, SchedulerError, type Schemas } from '../../api/typescript/src/index';
import { currentToken, sessionEnded, token } from './session';

export { must, SchedulerError, type Schemas };
export type Job = Schemas['Job'];
export type Execution = Schemas['Execution'];

const kept = new Map<string, { tag: string; body: string; token: string }>();
const maxKept = 50;

export const api = createScheduler({ baseUrl: location.origin, token });

api.use({
  onRequest({ request }) {
    const last = request.method === 'GET' ? kept.get(request.url) : undefined;
    if (last?.token === currentToken()) request.headers.set('If-None-Match', last.tag);
    return request;
  },
  async onResponse({ request, response }) {
    if (response.status === 401) {
      const body = (await response.clone().json().catch(() => null)) as Schemas['Error'] | null;
      sessionEnded(body?.error.message ?? 'the session has ended');
    }
    if (request.method !== 'GET') return response;
    if (response.status === 304) return new Response(kept.get(request.url)?.body ?? '', { status: 200, headers: response.headers });
    const tag = response.headers.get('ETag');
    if (response.ok && tag) {
      kept.delete(request.url);
      kept.set(request.url, { tag, body: await response.clone().text(), token: currentToken() });
      if (kept.size > maxKept) kept.delete(kept.keys().next().value!);
    }
    return response;
  },
});

interface Asked {
  state: { error: Error | null; status: string };
}

/** In how many milliseconds to ask again after an error; false where asking again would not help. A service that is away is asked soon, one that is busy later. */
export function again({ state: { error, status } }: Asked): number | false {
  if (status !== 'error') return false;
  if (!(error instanceof SchedulerError)) return 5_000;
  if (error.status === 429) return 30_000;
  return error.status >= 500 ? 15_000 : false;
}

/** How a screen that is looked at keeps itself new: every so often, and after an error as `again` says. Nothing is asked while it is hidden. */
export function every(seconds: number) {
  return {
    refetchInterval: (query: Asked) => (query.state.status === 'error' ? again(query) || 60_000 : seconds * 1000),
    refetchIntervalInBackground: false,
  };
}

/** A key that names a request, so that it can be repeated safely. (`randomUUID` is missing on pages without TLS.) */
export const newKey = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
