// How the installation is, for platform administrators: what it depends on, what waits in all.

import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { api, every, must, type Schemas } from './api';
import { can } from './session';
import { duration, span } from './time';
import { Facts, Loading, Problem, Rows, Status, Time, Title } from './ui';

/** An answer of 503 says how the service is, too. */
async function health(signal: AbortSignal): Promise<Schemas['Health']> {
  const { data, error, response } = await api.GET('/health', { signal });
  if (data) return data;
  if (response.status === 503 && error && 'dependencies' in error) return error as unknown as Schemas['Health'];
  return must(Promise.resolve({ error, response }) as never);
}

const names: [keyof Schemas['Health']['dependencies'], string, string][] = [
  ['database', 'PostgreSQL', 'Without it nothing works.'],
  ['redis', 'Redis', 'Without it runs start later.'],
  ['jobQueue', 'Queue of hints', 'Without it workers poll PostgreSQL.'],
  ['distributedLock', 'Leases', 'Without them nothing old is removed; jobs run all the same.'],
  ['services', 'Promoters and workers', 'Without a promoter nothing becomes due, without a worker nothing runs.'],
];

const route = getRouteApi('/platform');

export function Platform() {
  const { tab } = route.useSearch();
  return (
    <>
      <Title of="Platform">Platform</Title>
      {can('settings:read') && (
        <nav className="tabs" aria-label="About the platform">
          <Link to="/platform" search={{}} activeOptions={{ exact: true }} aria-current={tab ? undefined : 'page'}>State</Link>
          <Link to="/platform" search={{ tab: 'settings' }} aria-current={tab ? 'page' : undefined}>Settings</Link>
        </nav>
      )}
      {tab === 'settings' && can('settings:read') ? <Settings /> : <State />}
    </>
  );
}

function State() {
  const state = useQuery({ queryKey: ['health'], queryFn: ({ signal }) => health(signal), ...every(5) });
  const status = useQuery({ queryKey: ['status'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/status', { signal })), ...every(5) });
  return (
    <>
      {state.error && <Problem error={state.error} again={() => void state.refetch()} />}
      {state.isPending && <Loading what="the state" />}
      {state.data && (
        <>
          <p className="big"><Status of={state.data.status} />: {state.data.status === 'healthy' ? 'all that the service depends on answers.' : state.data.status === 'degraded' ? 'something is away that it can do without.' : 'something is away that it needs.'}</p>
          <Rows label="What it depends on" head={['What', 'State', 'Answers in', 'More']}>
            {names.map(([key, name, means]) => {
              const { healthy, latencyMs, ...more } = state.data.details[key];
              return (
                <tr key={key}>
                  <td>{name}<div className="faint">{means}</div></td>
                  <td><Status of={healthy ? 'healthy' : 'unhealthy'} /></td>
                  <td>{duration(latencyMs)}</td>
                  <td>{Object.entries(more).map(([field, value]) => <div key={field}><span className="faint">{field}</span> {typeof value === 'object' ? JSON.stringify(value) : String(value)}</div>)}</td>
                </tr>
              );
            })}
          </Rows>
          <h2>All tenants</h2>
          <Facts of={[
            ['Active jobs', known(state.data.metrics.activeJobs)],
            ['Executions that wait', known(state.data.metrics.queueSize)],
            ['Memory of this process', `${Math.round(state.data.metrics.memoryUsage / 2 ** 20).toLocaleString('en')} MiB`],
            ...(status.data ? [['Workers that live', status.data.activeWorkers], ['Version', <code key="version">{status.data.version}</code>], ['This process runs for', span(Math.round(status.data.uptimeSeconds))]] as [string, ReactNode][] : []),
          ]} />
        </>
      )}
      {status.error && <Problem error={status.error} />}
    </>
  );
}

const known = (count: number | null): string => (count === null ? 'not known' : count.toLocaleString('en'));

/** The settings that change while the processes run, to read. */
function Settings() {
  const query = useQuery({ queryKey: ['settings'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/settings', { signal })), ...every(30) });
  return (
    <>
      <p className="faint">They change while the processes run: <code>schedctl settings</code> sets them.</p>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="the settings" />}
      {query.data && (
        <Rows label="Settings" head={['Name', 'Value', 'Where from', 'Otherwise', 'Changed']}>
          {query.data.items.map((setting) => (
            <tr key={setting.name}>
              <td><code>{setting.name}</code><div className="faint">{setting.description}</div></td>
              <td>{setting.value === null ? <span className="faint">not read by this process</span> : <><bdi>{setting.value}</bdi> <span className="faint">{setting.unit}</span></>}</td>
              <td>{setting.source === 'database' ? 'set for the installation' : 'the environment'}</td>
              <td><bdi>{setting.default}</bdi></td>
              <td>{setting.changedAt ? <><Time at={setting.changedAt} /> {setting.changedBy && <>by <bdi>{setting.changedBy}</bdi></>}</> : <span className="faint">–</span>}</td>
            </tr>
          ))}
        </Rows>
      )}
    </>
  );
}
