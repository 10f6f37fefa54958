// The conditions of the list of monitors, as they stand in its address.

import type { Schemas } from './api';
import { textOf } from './jobs-filter';

export const monitorStatuses = ['new', 'ok', 'late', 'running', 'down', 'paused'] as const;

export interface MonitorFilters {
  status?: Schemas['MonitorStatus'] | undefined;
  tag?: string | undefined;
}

export function monitorFilters(search: Record<string, unknown>): MonitorFilters {
  return { status: monitorStatuses.find((status) => status === search['status']), tag: textOf(search['tag']) };
}
