// Times as people read them: always with their zone, and beside it how far away.

import { useSyncExternalStore } from 'react';

export const myZone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(zone: string): Intl.DateTimeFormat {
  let format = formats.get(zone);
  if (!format) {
    const options: Intl.DateTimeFormatOptions = {
      year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', timeZoneName: 'short',
    };
    try {
      format = new Intl.DateTimeFormat('en-GB', { ...options, timeZone: zone });
    } catch {
      format = new Intl.DateTimeFormat('en-GB', { ...options, timeZone: 'UTC' }); // a zone that this browser does not know
    }
    formats.set(zone, format);
  }
  return format;
}

/** `2026-03-29 03:30:00 CEST`. */
export function absolute(at: string, zone: string): string {
  const moment = new Date(at);
  if (Number.isNaN(moment.getTime())) return at;
  const part: Record<string, string> = {};
  for (const { type, value } of formatOf(zone).formatToParts(moment)) part[type] = value;
  return `${part['year']}-${part['month']}-${part['day']} ${part['hour']}:${part['minute']}:${part['second']} ${part['timeZoneName']}`;
}

const steps: [number, string][] = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];

/** `in 2 h 5 min`, `4 s ago`. */
export function relative(at: string, now: number): string {
  const seconds = Math.round((Date.parse(at) - now) / 1000);
  const text = span(Math.abs(seconds));
  if (text === '0 s') return 'now';
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/** The two largest units of a number of seconds. */
export function span(seconds: number): string {
  const at = steps.findIndex(([size]) => seconds >= size);
  if (at < 0) return '0 s';
  const [size, unit] = steps[at]!;
  const first = Math.floor(seconds / size);
  const next = steps[at + 1];
  const second = next ? Math.floor((seconds - first * size) / next[0]) : 0;
  return second > 0 && first < 10 ? `${first} ${unit} ${second} ${next![1]}` : `${first} ${unit}`;
}

/** A number of seconds that somebody chose, with nothing left out: `1 d 2 h 5 s`. */
export function exactly(seconds: number): string {
  const parts: string[] = [];
  let rest = seconds;
  for (const [size, unit] of steps) {
    if (rest >= size) parts.push(`${Math.floor(rest / size)} ${unit}`);
    rest %= size;
  }
  return parts.join(' ') || '0 s';
}

/** `12.5 ms`, `3.2 s`, `2 min 4 s`. */
export function duration(ms: number | null): string {
  if (ms === null) return '–';
  if (ms < 1000) return `${ms < 10 ? Math.round(ms * 100) / 100 : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return span(Math.round(ms / 1000));
}

// One clock for all that is shown. It stands still while the page is hidden.
let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function tick(): void {
  if (document.hidden) return;
  now = Date.now();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (!timer) {
    if (Date.now() - now > 1000) now = Date.now();
    timer = setInterval(tick, 1000);
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

export const useNow = (): number => useSyncExternalStore(subscribe, () => now);
