// Who is signed in. The token is in this module's memory; the browser keeps it for
// a reload in a cookie that no script reads and that only /console/session gets.

import { useSyncExternalStore } from 'react';
import { SchedulerError } from '../../api/typescript/src/index';

export interface Session {
  token: string;
  subject: string;
  tenantId: string;
  permissions: string[];
  /** When to ask for the next token; missing where none follows. */
  renewSeconds?: number;
}

interface State {
  session: Session | null;
  /** Why nobody is signed in any more; null where nobody was, or where somebody signed out. */
  ended: string | null;
  /** Where to sign in at the issuer; null where there is none. */
  issuer: string | null;
}

/** What the address says after a sign-in at the issuer that failed. */
const problems: Record<string, string> = {
  denied: 'The issuer did not let you in.',
  stale: 'This sign-in took longer than ten minutes, was used already, or was begun in another tab or browser. Sign in again.',
  refused: 'The issuer’s answer was not accepted. The log of the API says why.',
  unreachable: 'The issuer does not answer at present. Try again in a moment.',
  access: 'The issuer knows you, but the API does not accept its token: it may lack the claim tenant_id, or be meant for somebody else. The log of the API says why.',
  rights: 'The issuer knows you, but you may do nothing here: your account has no role of the scheduler, or its tenant may not act.',
  long: 'The issuer’s token is too long for the browser to keep. Ask your operator.',
};

let state: State = { session: null, ended: null, issuer: null };
const listeners = new Set<() => void>();

function set(next: Partial<State>): void {
  state = { ...state, ...next };
  for (const listener of listeners) listener();
}

async function ask(method: string, authorization?: string): Promise<unknown> {
  const response = await fetch('/console/session', {
    method,
    headers: { 'X-Scheduler-Console': '1', ...(authorization ? { Authorization: authorization } : {}) },
  });
  const issuer = response.headers.get('X-Scheduler-Sign-In');
  if (issuer !== state.issuer) set({ issuer });
  if (response.status === 204) return null;
  const body: unknown = await response.json().catch(() => null);
  if (!response.ok) throw new SchedulerError(response, body);
  return body;
}

const call = async (method: string, authorization?: string): Promise<Session | null> => (await ask(method, authorization)) as Session | null;

let timer: ReturnType<typeof setTimeout> | undefined;
let due = Infinity;

/** Shows a session, and plans for the token that follows. */
function open(session: Session | null): void {
  clearTimeout(timer);
  due = Infinity;
  if (session?.renewSeconds) {
    due = performance.now() + session.renewSeconds * 1000;
    timer = setTimeout(() => void renew(), session.renewSeconds * 1000);
  }
  set({ session, ended: null });
}

let renewing: Promise<void> | undefined;

/** Gets the next token. Of several tabs one asks at a time: the others then get the same one from the cookie. */
async function renew(): Promise<void> {
  const fetchNext = async (): Promise<void> => {
    const next = await call('GET');
    const now = state.session;
    if (!now) return;
    if (next && next.subject === now.subject && next.tenantId === now.tenantId) open(next);
    else set({ ended: 'You were signed out, or somebody else signed in, in another tab' });
  };
  const alone = async (): Promise<void> => {
    try {
      if (navigator.locks) await navigator.locks.request('scheduler-session', fetchNext);
      else await fetchNext();
    } catch (error) {
      due = Infinity;
      if (error instanceof SchedulerError && error.status === 401) set({ ended: error.message });
      else timer = setTimeout(() => void renew(), 10_000);
    } finally {
      renewing = undefined;
    }
  };
  await (renewing ??= alone());
}

/** Signs in with a token, an API key or, from the address that a development installation prints, a code. */
export async function signIn(authorization: string): Promise<void> {
  open(await call('POST', authorization));
}

/** Forgets the token here and in the browser, and signs out at the issuer if that is where somebody signed in. The cookie is the service's to remove: where that is away, it says so and tries again. */
export async function signOut(): Promise<void> {
  open(null);
  while (!state.session) {
    try {
      const answer = (await ask('DELETE')) as { signOutUrl: string } | null;
      set({ ended: null });
      if (answer) location.assign(answer.signOutUrl);
      return;
    } catch {
      set({ ended: 'You are signed out on this page, but this browser still keeps your session: the service could not be reached. The page tries again by itself; leave it open, or close the browser.' });
      await new Promise((resolve) => setTimeout(resolve, 3000));
    }
  }
}

/** The API refuses the token: the screen stays and asks for another. */
export function sessionEnded(reason: string): void {
  if (state.session) set({ ended: reason });
}

/** After a sign-in in another tab: goes on where the same person signed in. */
export async function resume(): Promise<boolean> {
  const next = await call('GET').catch(() => null);
  if (!next || next.subject !== state.session?.subject || next.tenantId !== state.session.tenantId) return false;
  open(next);
  return true;
}

/** Goes on as who was signed in before the page was loaded, or as whom the address says. */
export async function restoreSession(): Promise<void> {
  const [, code, problem] = /^#(?:sign-in=([\w-]+)|sign-in-failed=(\w+))$/.exec(location.hash) ?? [];
  if (code || problem) history.replaceState(null, '', location.pathname + location.search); // not into the history, nor into a copied address
  try {
    if (code) await signIn(`Code ${code}`);
    else open(await call('GET'));
    if (problem && !state.session) set({ ended: problems[problem] ?? problems.refused! });
  } catch (error) {
    open(null);
    set({ ended: error instanceof Error ? error.message : String(error) });
    if (code) await call('GET').then((session) => session && open(session), () => undefined);
  }
}

/** The token of a call, and where it ends about now, the next one. */
export async function token(): Promise<string> {
  if (performance.now() > due) await renew();
  return currentToken();
}

export const currentToken = (): string => state.session?.token ?? '';
export const can = (permission: string): boolean => state.session?.permissions.includes(permission) ?? false;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useSession = (): State => useSyncExternalStore(subscribe, () => state);
