// The conditions of the list of executions, as they stand in its address.

import type { Schemas } from './api';
import { textOf } from './jobs-filter';

export const executionStatuses = ['pending', 'running', 'retrying', 'completed', 'failed', 'cancelled', 'skipped', 'missed'] as const;
export const triggerTypes = ['scheduled', 'manual', 'retry', 'backfill'] as const;
export const errorTypes = ['TIMEOUT', 'NETWORK_ERROR', 'VALIDATION_ERROR', 'SYSTEM_ERROR', 'USER_ERROR'] as const;

export interface ExecutionFilters {
  status?: Schemas['ExecutionStatus'] | undefined;
  trigger?: Schemas['TriggerType'] | undefined;
  error?: Schemas['ErrorType'] | undefined;
  job?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

/** A time with its offset, as the API takes it. */
function timeOf(value: unknown): string | undefined {
  const text = textOf(value);
  return text && /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/.test(text) && !Number.isNaN(Date.parse(text)) ? text : undefined;
}

export function executionFilters(search: Record<string, unknown>): ExecutionFilters {
  return {
    status: executionStatuses.find((one) => one === search['status']),
    trigger: triggerTypes.find((one) => one === search['trigger']),
    error: errorTypes.find((one) => one === search['error']),
    job: textOf(search['job']),
    from: timeOf(search['from']),
    to: timeOf(search['to']),
  };
}
