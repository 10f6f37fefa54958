// The conditions of the list of jobs, as they stand in its address.

import type { Schemas } from './api';

export const jobStatuses = ['active', 'paused', 'inactive'] as const;
export const jobSorts = { '-createdAt': 'Newest first', createdAt: 'Oldest first', name: 'Name', nextExecutionAt: 'Next run', '-lastExecutionAt': 'Last run', '-updatedAt': 'Last change' } as const;

export interface JobFilters {
  q?: string | undefined;
  status?: Schemas['JobStatus'] | undefined;
  type?: string | undefined;
  tag?: string | undefined;
  sort?: keyof typeof jobSorts | undefined;
}

/** A search parameter as text: the router reads `?q=7` as a number. */
export const textOf = (value: unknown): string | undefined => (typeof value === 'string' || typeof value === 'number' ? String(value) || undefined : undefined);

export function jobFilters(search: Record<string, unknown>): JobFilters {
  const sort = textOf(search['sort']);
  return {
    q: textOf(search['q']),
    status: jobStatuses.find((status) => status === search['status']),
    type: textOf(search['type']),
    tag: textOf(search['tag']),
    sort: sort && sort in jobSorts ? (sort as keyof typeof jobSorts) : undefined,
  };
}

/** The conditions as the API's list and its bulk calls take them. */
export function selectionOf({ q, status, type, tag }: JobFilters): Schemas['JobSelection'] {
  return {
    ...(q && { q }),
    ...(status && { status: [status] }),
    ...(type && { jobType: [type as Schemas['JobType']] }),
    ...(tag && { tags: [tag] }),
  } as Schemas['JobSelection'];
}
