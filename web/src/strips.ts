// The last runs of the jobs whose rows are in sight: one question for all of them, once
// the list stands still.

import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useCallback, useEffect, useRef, useState } from 'react';
import { api, every, must, type Schemas } from './api';
import { can } from './session';

const most = 50; // jobs of one question, as the contract has it

/** What is known of each job, and how to say which are in sight. */
export function useStrips(shown: boolean): { of: ReadonlyMap<string, Schemas['RecentRun'][]>; onSight: (ids: string[]) => void } {
  const [ids, setIds] = useState<string[]>([]);
  const wait = useRef<ReturnType<typeof setTimeout>>(undefined);
  const known = useRef(new Map<string, Schemas['RecentRun'][]>());
  useEffect(() => () => clearTimeout(wait.current), []);
  const onSight = useCallback((next: string[]) => {
    clearTimeout(wait.current);
    wait.current = setTimeout(() => setIds(next.slice(0, most).sort()), 150);
  }, []);
  const query = useQuery({
    queryKey: ['strips', ids],
    enabled: shown && ids.length > 0 && can('executions:read'),
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/recent-runs', { signal, params: { query: { jobId: ids } } })),
    placeholderData: keepPreviousData,
    ...every(10),
  });
  // Rows that are scrolled back to show what was known of them at once.
  if (known.current.size > 2_000) known.current.clear();
  for (const { jobId, runs } of query.data?.items ?? []) known.current.set(jobId, runs);
  return { of: known.current, onSight };
}
