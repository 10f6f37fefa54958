// The conditions of the dead letters, as they stand in the address.

import type { Schemas } from './api';
import { errorTypes } from './executions-filter';
import { textOf } from './jobs-filter';

export interface DeadLetterFilters {
  fingerprint?: string | undefined;
  error?: Schemas['ErrorType'] | undefined;
  job?: string | undefined;
  view?: 'list' | 'replays' | undefined;
}

export function deadLetterFilters(search: Record<string, unknown>): DeadLetterFilters {
  return {
    fingerprint: textOf(search['fingerprint']),
    error: errorTypes.find((one) => one === search['error']),
    job: textOf(search['job']),
    view: search['view'] === 'list' || search['view'] === 'replays' ? search['view'] : undefined,
  };
}
