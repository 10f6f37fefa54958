// Who is signed in. The token is in this module's memory; the browser keeps it for
// a reload in a cookie that no script reads and that only /console/session gets.

import { useSyncExternalStore } from 'react';
import { SchedulerError } from '../../api/typescript/src/index';

export interface Session {
  token: string;
  subject: string;
  tenantId: string;
  permissions: string[];
}

interface State {
  session: Session | null;
  /** Why nobody is signed in any more; null where nobody was, or where somebody signed out. */
  ended: string | null;
}

let state: State = { session: null, ended: null };
const listeners = new Set<() => void>();

function set(next: State): void {
  state = next;
  for (const listener of listeners) listener();
}

async function call(method: string, authorization?: string): Promise<Session | null> {
  const response = await fetch('/console/session', {
    method,
    headers: { 'X-Scheduler-Console': '1', ...(authorization ? { Authorization: authorization } : {}) },
  });
  if (response.status === 204) return null;
  const body: unknown = await response.json().catch(() => null);
  if (!response.ok) throw new SchedulerError(response, body);
  return body as Session;
}

/** Signs in with a token, an API key or, from the address that a development installation prints, a code. */
export async function signIn(authorization: string): Promise<void> {
  set({ session: await call('POST', authorization), ended: null });
}

/** Forgets the token here and in the browser. */
export async function signOut(): Promise<void> {
  set({ session: null, ended: null });
  await call('DELETE');
}

/** The API refuses the token: the screen stays and asks for another. */
export function sessionEnded(reason: string): void {
  if (state.session) set({ session: state.session, ended: reason });
}

/** Goes on as who was signed in before the page was loaded, or as whom the address says. */
export async function restoreSession(): Promise<void> {
  const code = /^#sign-in=([\w-]+)$/.exec(location.hash)?.[1];
  try {
    if (code) {
      history.replaceState(null, '', location.pathname + location.search); // not into the history, nor into a copied address
      await signIn(`Code ${code}`);
    } else {
      set({ session: await call('GET'), ended: null });
    }
  } catch (error) {
    set({ session: null, ended: error instanceof Error ? error.message : String(error) });
    if (code) await call('GET').then((session) => session && set({ session, ended: null }), () => undefined);
  }
}

export const token = (): string => state.session?.token ?? '';
export const can = (permission: string): boolean => state.session?.permissions.includes(permission) ?? false;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useSession = (): State => useSyncExternalStore(subscribe, () => state);
