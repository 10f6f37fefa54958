// Limits and use: what the tenant may have, and how much of it it has.

import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { api, every, must, type Schemas } from './api';
import { Facts, Loading, Problem, Rows, Status, Time, Title } from './ui';

type Tenant = Schemas['TenantWithUsage'];

interface Line {
  name: string;
  used: number | null;
  limit: number | null | undefined;
  note?: string;
}

export function TenantScreen() {
  const query = useQuery({ queryKey: ['tenant'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/tenant', { signal })), ...every(10) });
  const tenant = query.data;
  return (
    <>
      <Title of="Limits and use">Limits and use</Title>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="the tenant" />}
      {tenant && <TenantUse tenant={tenant} unset="none" />}
    </>
  );
}

/** What a tenant may have and has. Where it has no limit of its own, `unset` says what that means. */
export function TenantUse({ tenant, unset }: { tenant: Tenant; unset: string }) {
  return (
    <>
      <Facts of={factsOf(tenant)} />
      <Rows label="Limits" head={['What', 'Used', 'Limit', 'Share']}>
        {linesOf(tenant).map((line) => (
          <tr key={line.name}>
            <td>{line.name}{line.note && <div className="faint">{line.note}</div>}</td>
            <td>{line.used === null ? <span className="faint">not counted</span> : line.used.toLocaleString('en')}</td>
            <td>{line.limit === null || line.limit === undefined ? <span className="faint">{unset}</span> : line.limit.toLocaleString('en')}</td>
            <td><Share line={line} /></td>
          </tr>
        ))}
      </Rows>
      <h2>Bounds</h2>
      <Facts of={boundsOf(tenant, unset)} />
    </>
  );
}

/** A share as a bar, a number and, where it is nearly used up, a word. */
function Share({ line: { name, used, limit } }: { line: Line }) {
  if (used === null || limit === null || limit === undefined) return <span className="faint">–</span>;
  const percent = limit === 0 ? 100 : Math.round((used / limit) * 100);
  return (
    <>
      <meter min={0} max={100} high={80} optimum={0} value={Math.min(100, percent)} aria-label={`${name}: share of the limit`} /> {percent} %
      {percent >= 100 ? <span className="bad"> ✕ used up</span> : percent >= 80 && <span className="warn"> △ nearly used up</span>}
    </>
  );
}

function linesOf({ usage, limits }: Tenant): Line[] {
  return [
    { name: 'Jobs', used: usage.jobs, limit: limits.maxJobs },
    { name: 'Executions that run at once', used: usage.running, limit: limits.maxRunning, note: 'More wait.' },
    { name: 'Executions that wait', used: usage.waiting, limit: limits.maxWaiting },
    { name: 'Executions made today (UTC)', used: usage.executionsToday, limit: limits.maxExecutionsPerDay },
    { name: 'Calendars', used: usage.calendars, limit: limits.maxCalendars },
    { name: 'Secrets', used: usage.secrets, limit: limits.maxSecrets },
    { name: 'API keys', used: usage.apiKeys, limit: limits.maxApiKeys },
  ];
}

function factsOf(tenant: Tenant): [string, ReactNode][] {
  const facts: [string, ReactNode][] = [
    ['Tenant', <bdi key="name">{tenant.name}</bdi>],
    ['State', <><Status of={tenant.status} />{tenant.statusReason && <>: <bdi>{tenant.statusReason}</bdi></>}</>],
    ['Changed', <Time key="at" at={tenant.updatedAt} />],
    ['Id', <code key="id">{tenant.id}</code>],
  ];
  if (tenant.usage.cancelling > 0) facts.push(['Jobs whose executions are still being cancelled', tenant.usage.cancelling]);
  return facts;
}

const listOf = (items: readonly string[] | null | undefined, none: string): ReactNode => (items?.length ? items.join(', ') : none);

function boundsOf({ limits, allowedIps, allowedHosts, allowedOrigins }: Tenant, unset: string): [string, ReactNode][] {
  const number = (value: number | null | undefined, unit: string): string => (value === null || value === undefined ? unset : `${value.toLocaleString('en')} ${unit}`);
  return [
    ['API requests', number(limits.requestsPerSecond, 'a second')],
    ['Between two scheduled times at least', number(limits.minIntervalSeconds, 's')],
    ['Body of a request', number(limits.maxPayloadBytes, 'bytes')],
    ['Waiting executions of one job', number(limits.maxWaitingPerJob, '')],
    ['At once by job type', listOf(Object.entries(limits.maxRunningByType ?? {}).map(([type, most]) => `${type}: ${most}`), 'no further limit')],
    ['Job types', listOf(limits.jobTypes, 'any but command')],
    ['Calls come from', listOf(allowedIps, 'anywhere')],
    ['Jobs may call', listOf(allowedHosts, 'any host')],
    ['Pages of these origins may call the API', listOf(allowedOrigins, 'all that the installation admits')],
  ];
}
