// A list that is read page after page.

import { useInfiniteQuery } from '@tanstack/react-query';
import { again } from './api';

type Page<T> = { items: T[]; nextCursor: string | null };

/** With `seconds`, the list keeps itself new while its first page is all that is shown: reading many pages again and again costs more than it tells. */
export function usePages<T>(queryKey: unknown[], read: (page: { limit: number; cursor?: string }, signal: AbortSignal) => Promise<Page<T>>, seconds?: (items: T[]) => number) {
  const query = useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam, signal }) => read({ limit: 100, ...(pageParam && { cursor: pageParam }) }, signal),
    initialPageParam: '',
    getNextPageParam: (page) => page.nextCursor ?? undefined,
    refetchInterval: (asked) => {
      const pages = asked.state.data?.pages;
      if (asked.state.status === 'error') return again(asked);
      if (!seconds || (pages && pages.length > 1)) return false;
      return seconds(pages?.[0]?.items ?? []) * 1000;
    },
  });
  return { query, items: query.data?.pages.flatMap((page) => page.items) ?? [] };
}
