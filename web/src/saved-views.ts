// Views that somebody keeps in this browser: a name, a screen and its filters. Nothing else is kept.

import { useSyncExternalStore } from 'react';

const screens = ['/jobs', '/executions', '/dead-letters', '/run-calendar', '/monitors'] as const;
export type Screen = (typeof screens)[number];
export interface SavedView {
  name: string;
  screen: Screen;
  search: Record<string, string>;
}

const key = 'scheduler.console.views';
export const maxName = 60;
const maxViews = 50;
const listeners = new Set<() => void>();

function read(): SavedView[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(key) ?? '[]');
    return Array.isArray(kept) ? kept.flatMap(viewOf).slice(0, maxViews) : [];
  } catch {
    return []; // storage is switched off, or holds something else
  }
}

/** What was kept, if it is a view. */
function viewOf(kept: Partial<SavedView> | null): SavedView[] {
  const screen = screens.find((one) => one === kept?.screen);
  if (!screen || typeof kept?.name !== 'string' || typeof kept.search !== 'object') return [];
  return [{ name: kept.name.slice(0, maxName), screen, search: filtersOf(kept.search ?? {}) }];
}

/** The filters that say something. */
export const filtersOf = (search: object): Record<string, string> =>
  Object.fromEntries(Object.entries(search).flatMap(([name, value]) => (typeof value === 'string' || typeof value === 'number' ? [[name, String(value)]] : [])));

let current = read();

function set(next: SavedView[]): void {
  current = next;
  try {
    localStorage.setItem(key, JSON.stringify(next));
  } catch {
    // They hold until the page is loaded again.
  }
  for (const listener of listeners) listener();
}

/** Keeps a view; one of the same name and screen is replaced. */
export const keepView = (view: SavedView): void => set([...current.filter((one) => one.name !== view.name || one.screen !== view.screen), view].slice(-maxViews));
export const forgetView = (view: SavedView): void => set(current.filter((one) => one !== view));

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useViews = (): SavedView[] => useSyncExternalStore(subscribe, () => current);
