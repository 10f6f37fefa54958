// Is everything on time? The answer in words, then the numbers behind it.

import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { api, every, must, type Schemas } from './api';
import { NextHour } from './next-hour';
import { can } from './session';
import { duration, span } from './time';
import { Empty, Loading, Problem, Status, Time, Title } from './ui';

/** Seconds from which something is late: beyond what a scheduled time takes to become a run in ordinary times. */
const late = 5;

/** All of the screen in one request, and between two of those, the state alone. */
export function Overview() {
  const overview = useQuery({ queryKey: ['overview'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/overview', { signal })), ...every(60) });
  const known = overview.data?.status;
  const status = useQuery({
    queryKey: ['status'],
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/status', { signal })),
    enabled: known !== undefined,
    ...(known && { initialData: known, initialDataUpdatedAt: overview.dataUpdatedAt }),
    staleTime: 5000,
    ...every(5),
  });
  const state = status.data && status.dataUpdatedAt >= overview.dataUpdatedAt ? status.data : known;
  const { day, failures, nextHour, unavailable = [] } = overview.data ?? {};
  const error = overview.error ?? status.error;
  return (
    <>
      <Title of="Overview">Overview</Title>
      {error && <Problem error={error} again={() => void (overview.error ? overview : status).refetch()} />}
      {overview.isPending && <Loading what="the state" />}
      {state && <Answer status={state} failed={day?.total.failed ?? 0} />}
      {state && <Numbers status={state} />}
      {unavailable.length > 0 && <p className="note">{unavailable.map((part) => parts[part]).join(' and ')} could not be computed in time. The screen tries again in a minute.</p>}
      {state && state.jobs.total > 0 && nextHour && <NextHour runs={nextHour} />}
      {day && <Day stats={day} />}
      {failures && failures.length > 0 && <Failures runs={failures} />}
    </>
  );
}

const parts = { day: 'The last 24 hours', failures: 'the newest failures', nextHour: 'the next hour' };

function Answer({ status, failed }: { status: Schemas['Status']; failed: number }) {
  const lag = Math.max(status.promotionLagSeconds, status.executions.oldestWaitingSeconds);
  if (status.jobs.total === 0) return <Empty title="There are no jobs yet.">{can('jobs:write') && <p><Link className="button main" to="/jobs/new" search={{}}>Create the first job</Link></p>}</Empty>;
  const jobs = <Link to="/jobs" search={{ status: 'active' }}>{status.jobs.active.toLocaleString('en')} active {status.jobs.active === 1 ? 'job' : 'jobs'}</Link>;
  return (
    <p className="big">
      {status.status !== 'healthy' && <><Status of={status.status} />: the service works with less than it should. </>}
      {status.activeWorkers === 0 ? <><span className="bad">✕ No worker lives, so nothing runs</span>: {jobs}.</>
        : lag > late ? <><span className="warn">△ Late by {span(Math.round(lag))}</span>: {jobs}, <Link to="/executions" search={{ status: 'pending' }}>{status.executions.waiting.toLocaleString('en')} executions wait</Link>.</>
          : <><span className="good">● On time</span>: {jobs}.</>}{' '}
      {failed > 0 && <Link to="/executions" search={{ status: 'failed' }}>{failed.toLocaleString('en')} {failed === 1 ? 'execution' : 'executions'} failed in 24 hours.</Link>}
    </p>
  );
}

function Card({ name, children }: { name: string; children: ReactNode }) {
  return <div className="card"><div className="faint">{name}</div><div className="value">{children}</div></div>;
}

function Numbers({ status: { jobs, executions, promotionLagSeconds, activeWorkers } }: { status: Schemas['Status'] }) {
  const n = (value: number): string => value.toLocaleString('en');
  return (
    <div className="cards">
      <Card name="Running"><Link to="/executions" search={{ status: 'running' }}>{n(executions.running)}</Link></Card>
      <Card name="Backlog: could start now">{n(executions.waiting)}</Card>
      <Card name="Oldest of the backlog">{duration(executions.oldestWaitingSeconds * 1000)}</Card>
      <Card name="Scheduled times not promoted yet, late by">{duration(promotionLagSeconds * 1000)}</Card>
      <Card name="Wait for their time">{n(executions.delayed)}</Card>
      <Card name="Paused jobs"><Link to="/jobs" search={{ status: 'paused' }}>{n(jobs.paused)}</Link></Card>
      <Card name="Inactive jobs"><Link to="/jobs" search={{ status: 'inactive' }}>{n(jobs.inactive)}</Link></Card>
      <Card name="Workers">{n(activeWorkers)}</Card>
    </div>
  );
}

/** What finished in the last 24 hours, hour by hour. */
function Day({ stats }: { stats: Schemas['ExecutionStats'] }) {
  const { total } = stats;
  if (total.count === 0) return <p className="faint">Nothing finished in the last 24 hours.</p>;
  const rate = total.successRate;
  return (
    <section aria-labelledby="day">
      <h2 id="day">The last 24 hours</h2>
      <p>
        {total.completed.toLocaleString('en')} completed, {total.failed.toLocaleString('en')} failed, {total.skipped.toLocaleString('en')} skipped, {total.missed.toLocaleString('en')} missed, {total.cancelled.toLocaleString('en')} cancelled.
        {rate !== null && <> Success {(rate * 100).toFixed(rate > 0.99 && rate < 1 ? 2 : 1)} %.</>}
        {total.durationMs && <> Half took less than {duration(total.durationMs.p50)}, 99 % less than {duration(total.durationMs.p99)}.</>}
      </p>
      <Bars stats={stats} />
    </section>
  );
}

function Bars({ stats }: { stats: Schemas['ExecutionStats'] }) {
  const first = Math.floor(Date.parse(stats.from) / 3600_000);
  const most = Math.max(1, ...stats.groups.map((group) => group.count));
  const height = (n: number): number => (n === 0 ? 0 : Math.max(1.5, (n / most) * 86));
  return (
    <svg className="chart" viewBox="0 0 1000 90" preserveAspectRatio="none" role="img" aria-label={`Finished executions by hour, the most ${most} in one hour, ${stats.total.failed} failed in all`}>
      {stats.groups.map((group) => {
        const x = (Math.floor(Date.parse(group.key) / 3600_000) - first) * 40;
        const [ok, no, rest] = [height(group.completed), height(group.failed), height(group.count - group.completed - group.failed)];
        return (
          <g key={group.key}>
            <title>{`${group.key}: ${group.completed} completed, ${group.failed} failed, ${group.count - group.completed - group.failed} others`}</title>
            <rect className="ok" x={x + 2} width={34} y={90 - ok} height={ok} />
            <rect className="no" x={x + 2} width={34} y={90 - ok - no} height={no} />
            <rect className="else" x={x + 2} width={34} y={90 - ok - no - rest} height={rest} />
          </g>
        );
      })}
    </svg>
  );
}

/** The newest failures, by job. */
function Failures({ runs }: { runs: Schemas['Execution'][] }) {
  const newest = new Map<string, { run: Schemas['Execution']; count: number }>();
  for (const run of runs) {
    const seen = newest.get(run.jobId);
    if (seen) seen.count++;
    else newest.set(run.jobId, { run, count: 1 });
  }
  return (
    <section aria-labelledby="failing">
      <h2 id="failing">What failed last</h2>
      <div className="scroll" tabIndex={0} role="region" aria-label="Failures">
        <table>
          <thead><tr><th>Job</th><th>Last failure</th><th>Error</th></tr></thead>
          <tbody>
            {[...newest.values()].map(({ run, count }) => (
              <tr key={run.jobId}>
                <td><Link to="/jobs/$id" params={{ id: run.jobId }} search={{}}><bdi>{run.jobName}</bdi></Link>{count > 1 && <span className="faint"> {count}×</span>}</td>
                <td><Link to="/executions/$id" params={{ id: run.id }}><Time at={run.scheduledAt} short /></Link></td>
                <td>{run.errorType}: {run.errorMessage}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
