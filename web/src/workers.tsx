// Workers that live, those of the tenant too, and what waits in each lane.

import { useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, every, must, type Schemas } from './api';
import { can } from './session';
import { duration, span } from './time';
import { Empty, FormDialog, Loading, Problem, Rows, Time, Title } from './ui';

const route = getRouteApi('/workers');

export function Workers() {
  const { tab } = route.useSearch();
  const remote = can('workers:read') && tab === 'remote';
  return (
    <>
      <Title of="Workers and queues">Workers and queues</Title>
      {can('workers:read') && (
        <nav className="tabs" aria-label="Whose workers">
          <Link to="/workers" search={{}} activeOptions={{ exact: true }} aria-current={remote ? undefined : 'page'}>Of the installation</Link>
          <Link to="/workers" search={{ tab: 'remote' }} aria-current={remote ? 'page' : undefined}>Remote workers</Link>
        </nav>
      )}
      {remote ? <Remote /> : <Installed />}
    </>
  );
}

function Installed() {
  const workers = useQuery({ queryKey: ['workers'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/workers', { signal })), ...every(5) });
  const queues = useQuery({ queryKey: ['queues'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/queues', { signal })), ...every(5) });
  return (
    <>
      {queues.error && <Problem error={queues.error} again={() => void queues.refetch()} />}
      {queues.data && (
        <>
          <h2>Lanes</h2>
          <Rows label="Lanes" head={['Lane', 'Running', 'Backlog', 'Oldest waits', 'Wait for their time']}>
            {queues.data.lanes.map((lane) => (
              <tr key={lane.name}><td>{lane.name}</td><td>{lane.running}</td><td>{lane.waiting}</td><td>{duration(lane.oldestWaitingSeconds * 1000)}</td><td>{lane.delayed}</td></tr>
            ))}
          </Rows>
          <p className="faint">Workers learn what to run from {queues.data.backend === 'redis' ? 'Redis' : 'PostgreSQL'}. Priorities 7 to 9 are the lane “high”, 3 to 6 “normal”, 0 to 2 “low”.</p>
        </>
      )}
      <h2>Workers</h2>
      {workers.error && <Problem error={workers.error} again={() => void workers.refetch()} />}
      {workers.isPending && <Loading what="workers" />}
      {workers.data?.items.length === 0 && <Empty title="No worker lives: nothing runs." />}
      {workers.data && workers.data.items.length > 0 && (
        <Rows label="Workers" head={['Worker', 'Runs of yours', 'Slots', 'Job types', 'Last heard of', 'Started']}>
          {workers.data.items.map((worker) => (
            <tr key={worker.id}>
              <td><code>{worker.id}</code>{worker.host && <> <bdi>{worker.host}</bdi></>}</td>
              <td>{worker.running}{worker.runningOfAll !== null && <span className="faint"> of {worker.runningOfAll} in all</span>}</td>
              <td>{worker.slots}</td>
              <td>{worker.jobTypes.join(', ')}</td>
              <td>{span(Math.round(worker.heartbeatAgeSeconds))} ago</td>
              <td><Time at={worker.startedAt} /></td>
            </tr>
          ))}
        </Rows>
      )}
    </>
  );
}

type RemoteWorker = Schemas['RemoteWorker'];

/** The tenant's own workers, which run functions elsewhere and ask for them. */
function Remote() {
  const [ending, setEnding] = useState<RemoteWorker | null>(null);
  const queries = useQueryClient();
  const query = useQuery({ queryKey: ['remote-workers'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/remote-workers', { signal })), ...every(5) });
  return (
    <>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="remote workers" />}
      {query.data?.items.length === 0 && <Empty title="No remote worker lives."><p>A remote worker is a program of yours that asks the API for executions of its functions and runs them where it is. Once one registers, it stands here.</p></Empty>}
      {query.data && query.data.items.length > 0 && (
        <Rows label="Remote workers" head={['Worker', 'Runs', 'Functions', 'Last heard of', 'Started', '.Actions']}>
          {query.data.items.map((worker) => (
            <tr key={worker.id}>
              <td><bdi>{worker.name}</bdi><div className="faint"><code>{worker.id}</code></div></td>
              <td>{worker.running} <span className="faint">of {worker.slots}</span></td>
              <td>{worker.functions.map((name) => <span key={name} className="tag"><bdi>{name}</bdi></span>)}</td>
              <td><Time at={worker.heartbeatAt} short /><div className="faint">its lease ends <Time at={worker.expiresAt} short /></div></td>
              <td><Time at={worker.startedAt} /></td>
              <td>{can('workers:run') && <button type="button" className="danger" onClick={() => setEnding(worker)}>Deregister<span className="unseen"> <bdi>{worker.name}</bdi></span></button>}</td>
            </tr>
          ))}
        </Rows>
      )}
      {ending && (
        <FormDialog title="Deregister this worker" submit="Deregister this worker" danger onClose={() => setEnding(null)}
          act={async () => {
            await must(api.DELETE('/api/v1/scheduler/remote-workers/{id}', { params: { path: { id: ending.id } } }) as Promise<{ data?: null; response: Response }>);
            await queries.invalidateQueries({ queryKey: ['remote-workers'] });
          }}>
          <p><bdi>{ending.name}</bdi> gets no further execution unless it registers again. What it runs, it may finish.</p>
        </FormDialog>
      )}
    </>
  );
}
