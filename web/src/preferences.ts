// What a person likes: theme and zone. They are no secret and stay in the browser.

import { useSyncExternalStore } from 'react';

export type Theme = 'system' | 'light' | 'dark';
/** Whose clock times are shown by: the job's, this browser's, or UTC. */
export type Clock = 'job' | 'mine' | 'utc';

interface Preferences {
  theme: Theme;
  clock: Clock;
}

const key = 'scheduler.console';
const listeners = new Set<() => void>();
let current = read();

function read(): Preferences {
  const standard: Preferences = { theme: 'system', clock: 'mine' };
  try {
    const kept = JSON.parse(localStorage.getItem(key) ?? '{}') as Partial<Preferences>;
    return {
      theme: kept.theme === 'light' || kept.theme === 'dark' ? kept.theme : standard.theme,
      clock: kept.clock === 'job' || kept.clock === 'utc' ? kept.clock : standard.clock,
    };
  } catch {
    return standard; // storage is switched off
  }
}

export function prefer(change: Partial<Preferences>): void {
  current = { ...current, ...change };
  try {
    localStorage.setItem(key, JSON.stringify(current));
  } catch {
    // It holds until the page is loaded again.
  }
  applyTheme();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const usePreferences = (): Preferences => useSyncExternalStore(subscribe, () => current);

export function applyTheme(): void {
  if (current.theme === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = current.theme;
}
