// The days of the run calendar: dates as texts, on this browser's clock or in UTC.

export const views = ['day', 'week', 'month'] as const;
export type View = (typeof views)[number];

export const kinds = ['job', 'monitor'] as const;

export interface RunCalendarFilters {
  view?: View | undefined;
  /** A date that is shown, `2026-03-29`; today where there is none. */
  date?: string | undefined;
  /** Runs of jobs alone, or of monitors; both where there is none. */
  kind?: (typeof kinds)[number] | undefined;
}

export function runCalendarFilters(search: Record<string, unknown>): RunCalendarFilters {
  const date = typeof search['date'] === 'string' && /^\d{4}-\d{2}-\d{2}$/.test(search['date']) && !Number.isNaN(Date.parse(search['date'])) ? search['date'] : undefined;
  return { view: views.find((one) => one === search['view']), date, kind: kinds.find((one) => one === search['kind']) };
}

/** A date so many days later. */
export const plus = (date: string, days: number): string => new Date(Date.parse(date) + days * 86_400_000).toISOString().slice(0, 10);

/** The date of a time. */
export function dateOf(at: number, utc: boolean): string {
  const time = new Date(at);
  if (utc) return time.toISOString().slice(0, 10);
  const two = (n: number): string => String(n).padStart(2, '0');
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

/** When a date begins. */
export function beginOf(date: string, utc: boolean): number {
  const [year, month, day] = date.split('-').map(Number) as [number, number, number];
  return utc ? Date.UTC(year, month - 1, day) : new Date(year, month - 1, day).getTime();
}

/** Monday is 0. */
const weekday = (date: string): number => (new Date(date).getUTCDay() + 6) % 7;

const monthOf = (date: string, months: number): string => {
  const time = new Date(date);
  return new Date(Date.UTC(time.getUTCFullYear(), time.getUTCMonth() + months, 1)).toISOString().slice(0, 10);
};

/** The days that a view shows, the last one excluded. */
export function rangeOf(view: View, date: string): { first: string; end: string } {
  if (view === 'day') return { first: date, end: plus(date, 1) };
  if (view === 'week') {
    const first = plus(date, -weekday(date));
    return { first, end: plus(first, 7) };
  }
  return { first: monthOf(date, 0), end: monthOf(date, 1) };
}

/** A date in the view before or after. */
export function step(view: View, date: string, by: 1 | -1): string {
  return view === 'month' ? monthOf(date, by) : plus(date, by * (view === 'week' ? 7 : 1));
}

/** The weeks of a month: seven dates each, null where they are of another month. */
export function weeksOf(first: string, end: string): (string | null)[][] {
  const weeks: (string | null)[][] = [];
  for (let monday = plus(first, -weekday(first)); monday < end; monday = plus(monday, 7)) {
    weeks.push(Array.from({ length: 7 }, (_, day) => plus(monday, day)).map((date) => (date >= first && date < end ? date : null)));
  }
  return weeks;
}

const names = { day: new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC', weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' }), short: new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC', weekday: 'short', day: 'numeric', month: 'short' }), month: new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC', month: 'long', year: 'numeric' }) };

export const longName = (date: string): string => names.day.format(Date.parse(date));
export const shortName = (date: string): string => names.short.format(Date.parse(date));

export function titleOf(view: View, first: string, end: string): string {
  if (view === 'day') return longName(first);
  return view === 'month' ? names.month.format(Date.parse(first)) : `${shortName(first)} to ${longName(plus(end, -1))}`;
}
