// A list of executions, kept up to date while its first page is all that is shown.

import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { again, type Schemas } from './api';
import { List } from './list';
import { Strip } from './strip';
import { duration, relative } from './time';
import { Loading, Problem, Status, Time } from './ui';

interface Props {
  queryKey: unknown[];
  read: (cursor: string, signal: AbortSignal) => Promise<Schemas['ExecutionPage']>;
  empty: ReactNode;
  zone?: string;
  /** Shows the newest runs as bars above the list: they are of one job. */
  strip?: boolean;
}

export function Runs({ queryKey, read, empty, zone, strip }: Props) {
  const query = useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam, signal }) => read(pageParam, signal),
    initialPageParam: '',
    getNextPageParam: (page) => page.nextCursor ?? undefined,
    refetchInterval: (asked) => (asked.state.status === 'error' ? again(asked) : asked.state.data?.pages.length === 1 ? 2_000 : false),
  });
  const runs = query.data?.pages.flatMap((page) => page.items) ?? [];
  const live = query.data?.pages.length === 1;
  return (
    <>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="executions" />}
      {query.data && runs.length === 0 && empty}
      {runs.length > 0 && (
        <>
          {strip && <Strip runs={runs.slice(0, 30).reverse()} />}
          <p className="faint">{runs.length}{query.hasNextPage ? ' or more' : ''} {runs.length === 1 ? 'execution' : 'executions'}, {live ? 'shown live' : <>as of when they were read. <button type="button" className="plain" onClick={() => void query.refetch()}>Read them again</button></>}</p>
          <List label="Executions" className="runs" items={runs} keyOf={(run) => run.id} more={query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : undefined}
            head={<>
              <span role="columnheader">Status</span>
              <span role="columnheader">Job</span>
              <span role="columnheader">Scheduled</span>
              <span role="columnheader" className="wide">Late by</span>
              <span role="columnheader" className="wide">Took</span>
              <span role="columnheader" className="wide">Reason</span>
            </>}
            row={(run) => <>
              <span role="cell"><Status of={run.status} /></span>
              <span role="cell" title={run.jobName}><Link to="/executions/$id" params={{ id: run.id }}><bdi>{run.jobName}</bdi></Link></span>
              <span role="cell"><span className="wide"><Time at={run.scheduledAt} {...(zone && { zone })} /></span><span className="narrow"><Time at={run.scheduledAt} short /></span></span>
              <span role="cell" className="wide">{run.startedAt ? duration(Math.max(0, Date.parse(run.startedAt) - Date.parse(run.scheduledAt))) : '–'}</span>
              <span role="cell" className="wide">{run.status === 'running' && run.startedAt ? relative(run.startedAt, Date.now()).replace(' ago', '') : duration(run.durationMs)}</span>
              <span role="cell" className="wide" title={run.errorMessage ?? run.reason ?? ''}>{run.errorMessage ?? run.reason ?? ''}</span>
            </>} />
        </>
      )}
    </>
  );
}
