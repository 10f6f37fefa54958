// What ran and what will run, of all jobs and monitors, by hour or day: a day, a week or a month.

import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import type { KeyboardEvent, ReactNode } from 'react';
import { api, every, must, type Schemas } from './api';
import { brief, shade } from './heat';
import { usePreferences } from './preferences';
import { beginOf, dateOf, kinds, longName, plus, rangeOf, shortName, step, titleOf, views, weeksOf, type RunCalendarFilters } from './run-calendar-days';
import { can } from './session';
import { absolute, myZone } from './time';
import { Empty, Loading, Problem, Title } from './ui';
import { Views } from './views';

const route = getRouteApi('/run-calendar');

/** An hour or a day: what finished in it, and what is to come. */
interface Cell {
  done: number;
  executions: number; // of done: those of jobs, which the list of executions shows
  failed: number;
  due: number;
  jobCount: number;
  jobs: Schemas['UpcomingJob'][];
  monitorCount: number;
  monitors: Schemas['UpcomingMonitor'][];
}

export function RunCalendar() {
  const filters = route.useSearch();
  const navigate = route.useNavigate();
  const { clock } = usePreferences();
  const utc = clock === 'utc';
  const zone = utc ? 'UTC' : myZone;
  const today = dateOf(Date.now(), utc);
  const view = filters.view ?? 'week';
  const date = filters.date ?? today;
  const { first, end } = rangeOf(view, date);
  const go = (change: RunCalendarFilters): void => void navigate({ search: (before) => ({ ...before, ...change }) });
  const { cells, query, told, upcoming, unavailable } = useCells(first, end, view === 'month' ? 'day' : 'hour', utc, zone, filters.kind);
  const total = [...cells.values()].reduce((sum, cell) => sum + cell.done + cell.due, 0);
  const keys = (event: KeyboardEvent): void => {
    if (event.key !== 'PageUp' && event.key !== 'PageDown') return moveFocus(event);
    event.preventDefault();
    go({ date: step(view, date, event.key === 'PageUp' ? -1 : 1) });
  };
  return (
    <>
      <Title of="Run calendar">Run calendar</Title>
      <div className="bar">
        <button type="button" onClick={() => go({ date: step(view, date, -1) })}><span aria-hidden="true">‹</span> Before</button>
        <button type="button" onClick={() => go({ date: undefined })} aria-pressed={today >= first && today < end}>Today</button>
        <button type="button" onClick={() => go({ date: step(view, date, 1) })}>After <span aria-hidden="true">›</span></button>
        <label>Date<input type="date" value={date} onChange={(event) => event.target.value && go({ date: event.target.value })} /></label>
        <label>Shown
          <select value={view} onChange={(event) => go({ view: views.find((one) => one === event.target.value) })}>
            {views.map((one) => <option key={one} value={one}>{`A ${one}`}</option>)}
          </select>
        </label>
        {can('monitors:read') && (
          <label>Of
            <select value={filters.kind ?? ''} onChange={(event) => go({ kind: kinds.find((one) => one === event.target.value) })}>
              <option value="">Jobs and monitors</option>
              {kinds.map((one) => <option key={one} value={one}>{one === 'job' ? 'Jobs' : 'Monitors'}</option>)}
            </select>
          </label>
        )}
      </div>
      <Views screen="/run-calendar" search={filters} />
      <h2 aria-live="polite">{titleOf(view, first, end)} <span className="faint">({zone})</span></h2>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="the runs" />}
      {unavailable.length > 0 && <p className="note">{unavailable.map((part) => parts[part]).join(' and ')} could not be computed in time. The screen tries again in a minute.</p>}
      {upcoming?.truncated && (
        <p className="note">Only the {(upcoming.jobs + upcoming.monitors).toLocaleString('en')} jobs and monitors that are due first could be counted: from {absolute(upcoming.completeUntil, zone)} on, runs are missing.</p>
      )}
      {told?.truncated && <p className="note">Of monitors, only the newest 100,000 runs could be counted: before {absolute(told.completeFrom, zone)}, runs are missing.</p>}
      {query.data && unavailable.length === 0 && total === 0 && (
        <Empty title={`Nothing runs in this ${view}.`}>
          <p>Jobs with a schedule stand here with the times at which they run, and monitors with those at which they expect a run.</p>
          {can('jobs:write') && <p><Link className="button main" to="/jobs/new" search={{}}>New job</Link></p>}
        </Empty>
      )}
      {total > 0 && (
        <>
          <p className="faint">{view === 'month' ? 'Of each day' : 'Of each hour'}: what finished, ✕ of it failed, and → what is due. Arrows move between the cells that have a link, Page Up and Page Down to the time before and after.</p>
          <div onKeyDown={keys}>
            {view === 'month' ? <Month first={first} end={end} cells={cells} today={today} /> : view === 'week' ? <Week first={first} cells={cells} today={today} utc={utc} /> : <Day date={first} cells={cells} utc={utc} zone={zone} />}
          </div>
        </>
      )}
    </>
  );
}

/** What finished and what is due, in one answer: by hour or by day. */
function useCells(first: string, end: string, unit: 'hour' | 'day', utc: boolean, zone: string, kind: RunCalendarFilters['kind']) {
  const text = (date: string): string => new Date(beginOf(date, utc)).toISOString();
  const query = useQuery({
    queryKey: ['run-calendar', first, end, unit, zone, kind],
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/run-calendar', { signal, params: { query: { from: text(first), to: text(end), bucket: unit, timezone: zone, named: unit === 'day' ? 3 : 10, ...(kind && { kind }) } } })),
    ...every(60),
  });
  const cells = new Map<string, Cell>();
  const cell = (key: string): Cell => {
    const place = key.slice(0, unit === 'day' ? 10 : 13); // an hour that comes twice is one
    let found = cells.get(place);
    if (!found) cells.set(place, (found = { done: 0, executions: 0, failed: 0, due: 0, jobCount: 0, jobs: [], monitorCount: 0, monitors: [] }));
    return found;
  };
  for (const group of query.data?.executions?.groups ?? []) {
    const at = cell(group.key);
    at.done += group.count;
    at.executions += group.count;
    at.failed += group.failed;
  }
  for (const bucket of query.data?.monitorRuns?.buckets ?? []) {
    const at = cell(bucket.startAt);
    at.done += bucket.count;
    at.failed += bucket.failed;
  }
  for (const bucket of query.data?.upcoming?.buckets ?? []) {
    const at = cell(bucket.startAt);
    at.due += bucket.count;
    at.jobCount = Math.max(at.jobCount, bucket.jobCount);
    at.jobs = [...at.jobs, ...bucket.jobs.filter((job) => !at.jobs.some((one) => one.jobId === job.jobId))];
    at.monitorCount = Math.max(at.monitorCount, bucket.monitorCount);
    at.monitors = [...at.monitors, ...bucket.monitors.filter((monitor) => !at.monitors.some((one) => one.monitorId === monitor.monitorId))];
  }
  return { cells, query, told: query.data?.monitorRuns, upcoming: query.data?.upcoming, unavailable: query.data?.unavailable ?? [] };
}

const parts = { executions: 'What finished of jobs', monitorRuns: 'what finished of monitors', upcoming: 'what is due' };

const hours = Array.from({ length: 24 }, (_, hour) => String(hour).padStart(2, '0'));

/** What a cell says, in signs to see and in words to hear. */
function Counts({ of }: { of: Cell | undefined }) {
  if (!of || of.done + of.due === 0) return <span className="faint" aria-label="nothing" role="img">·</span>;
  return (
    <>
      {of.done > 0 && <span title={`${of.done.toLocaleString('en')} finished`}>{brief(of.done)}<span className="unseen"> finished</span></span>}
      {of.failed > 0 && <span className="failed" title={`${of.failed.toLocaleString('en')} failed`}> ✕{brief(of.failed)}<span className="unseen"> failed</span></span>}
      {of.due > 0 && <span title={`${of.due.toLocaleString('en')} due`}> <span aria-hidden="true">→</span>{brief(of.due)}<span className="unseen"> due</span></span>}
    </>
  );
}

/** The most of any cell, by which all are shaded. */
const most = (cells: Map<string, Cell>): number => Math.max(1, ...[...cells.values()].map((cell) => cell.done + cell.due));
const shadeOf = (cell: Cell | undefined, top: number): string => shade((cell?.done ?? 0) + (cell?.due ?? 0), top);

/** The executions of an hour or a day that has begun. */
function Past({ from, to, children }: { from: number; to: number; children: ReactNode }) {
  return <Link to="/executions" search={{ from: new Date(from).toISOString(), to: new Date(to).toISOString() }}>{children}</Link>;
}

function Day({ date, cells, utc, zone }: { date: string; cells: Map<string, Cell>; utc: boolean; zone: string }) {
  const top = most(cells);
  const [begin, end] = [beginOf(date, utc), beginOf(plus(date, 1), utc)];
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="The hours of the day">
      <table className="calendar">
        <thead><tr><th scope="col">Hour</th><th scope="col">Runs</th><th scope="col">What is due first</th></tr></thead>
        <tbody>
          {hours.map((hour) => {
            const cell = cells.get(`${date}T${hour}`);
            const at = begin + Number(hour) * 3600_000;
            const plain = end - begin === 86_400_000; // else hours do not stand where they are looked for
            return (
              <tr key={hour}>
                <th scope="row">{hour}:00</th>
                <td className={shadeOf(cell, top)}>{cell && cell.executions > 0 && plain && can('executions:read') ? <Past from={at} to={at + 3600_000}><Counts of={cell} /></Past> : <Counts of={cell} />}</td>
                <td>{cell && <Jobs of={cell} zone={zone} />}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Jobs({ of, zone }: { of: Cell; zone: string }) {
  const more = of.jobCount - of.jobs.length;
  const others = of.monitorCount - of.monitors.length;
  return (
    <ul className="runs-due">
      {of.jobs.map((job) => (
        <li key={job.jobId}>
          <span className="faint">{absolute(job.firstAt, zone).slice(11, 19)}</span> <Link to="/jobs/$id" params={{ id: job.jobId }} search={{}}><bdi>{job.jobName}</bdi></Link>{job.count > 1 && <span className="faint"> {job.count.toLocaleString('en')}×</span>}
        </li>
      ))}
      {more > 0 && <li className="faint">and {more.toLocaleString('en')} more {more === 1 ? 'job' : 'jobs'}</li>}
      {of.monitors.map((one) => (
        <li key={one.monitorId}>
          <span className="faint">{absolute(one.firstAt, zone).slice(11, 19)} monitor</span> <Link to="/monitors/$id" params={{ id: one.monitorId }}><bdi>{one.monitorName}</bdi></Link>{one.count > 1 && <span className="faint"> {one.count.toLocaleString('en')}×</span>}
        </li>
      ))}
      {others > 0 && <li className="faint">and {others.toLocaleString('en')} more {others === 1 ? 'monitor' : 'monitors'}</li>}
    </ul>
  );
}

function Week({ first, cells, today, utc }: { first: string; cells: Map<string, Cell>; today: string; utc: boolean }) {
  const days = Array.from({ length: 7 }, (_, day) => plus(first, day));
  const top = most(cells);
  const used = hours.filter((hour) => days.some((day) => cells.has(`${day}T${hour}`)));
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="The hours of the week">
      <table className="calendar heat">
        <thead>
          <tr>
            <th scope="col">Hour</th>
            {days.map((day) => (
              <th key={day} scope="col" aria-current={day === today ? 'date' : undefined}><Link to="/run-calendar" search={{ view: 'day', date: day }} title={longName(day)}>{shortName(day)}</Link>{changes(day, utc) && <span title="The clock is changed on this day"> △</span>}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {used.map((hour) => (
            <tr key={hour}>
              <th scope="row">{hour}:00</th>
              {days.map((day) => <td key={day} className={shadeOf(cells.get(`${day}T${hour}`), top)}><Counts of={cells.get(`${day}T${hour}`)} /></td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Whether a day has more or fewer than 24 hours. */
const changes = (day: string, utc: boolean): boolean => beginOf(plus(day, 1), utc) - beginOf(day, utc) !== 86_400_000;

function Month({ first, end, cells, today }: { first: string; end: string; cells: Map<string, Cell>; today: string }) {
  const top = most(cells);
  const weeks = weeksOf(first, end);
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="The days of the month">
      <table className="calendar month">
        <thead><tr>{['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'].map((day) => <th key={day} scope="col">{day}</th>)}</tr></thead>
        <tbody>
          {weeks.map((week, index) => (
            <tr key={index}>
              {week.map((date, day) => {
                const cell = date ? cells.get(date) : undefined;
                return date ? (
                  <td key={date} className={shadeOf(cell, top)} aria-current={date === today ? 'date' : undefined}>
                    <Link to="/run-calendar" search={{ view: 'day', date }} aria-label={longName(date)}>{Number(date.slice(8))}</Link>
                    <div><Counts of={cell} /></div>
                    {cell && cell.jobs.length + cell.monitors.length > 0 && <div className="wide names">{[...cell.jobs.map((job) => job.jobName), ...cell.monitors.map((one) => one.monitorName)].join(', ')}{cell.jobCount + cell.monitorCount > cell.jobs.length + cell.monitors.length && ', …'}</div>}
                  </td>
                ) : <td key={day} />;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const arrows: Record<string, [across: number, down: number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Arrows go to the next cell in their direction that has a link. */
function moveFocus(event: KeyboardEvent): void {
  const by = arrows[event.key];
  const from = (event.target as HTMLElement).closest<HTMLTableCellElement>('td, th');
  if (!by || !from || event.target === event.currentTarget) return;
  const rows = [...from.closest('table')!.rows];
  let [row, column] = [rows.indexOf(from.parentElement as HTMLTableRowElement), from.cellIndex];
  for (;;) {
    row += by[1];
    column += by[0];
    const cell = rows[row]?.cells[column];
    if (!cell) return;
    const link = cell.querySelector('a');
    if (!link) continue;
    event.preventDefault();
    return link.focus();
  }
}
