// Workers that live, and what waits in each lane.

import { useQuery } from '@tanstack/react-query';
import { api, every, must } from './api';
import { duration, span } from './time';
import { Empty, Loading, Problem, Rows, Time, Title } from './ui';

export function Workers() {
  const workers = useQuery({ queryKey: ['workers'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/workers', { signal })), ...every(5) });
  const queues = useQuery({ queryKey: ['queues'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/queues', { signal })), ...every(5) });
  return (
    <>
      <Title of="Workers and queues">Workers and queues</Title>
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
