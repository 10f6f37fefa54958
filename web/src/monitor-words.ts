// Sentences about monitors and their runs.

import type { Schemas } from './api';
import { cronInWords } from './cron-words';
import { exactly } from './time';

export type Monitor = Schemas['Monitor'];

/** `At 02:00, every day`, or `Every 10 min`. */
export function scheduleInWords({ cronExpression, intervalSeconds }: Pick<Monitor, 'cronExpression' | 'intervalSeconds'>): string {
  if (cronExpression !== null) return cronInWords(cronExpression) ?? cronExpression;
  return `Every ${exactly(intervalSeconds ?? 0)}`;
}

/** Why a monitor is down, as a sentence. */
export function whyDown({ reason, maxRuntimeSeconds, completionGraceSeconds, minRuntimeSeconds }: Monitor): string {
  switch (reason) {
    case 'not_started': return 'No run started in time.';
    case 'too_slow': return `A run did not end within ${exactly(maxRuntimeSeconds + completionGraceSeconds)}.`;
    case 'too_fast': return `A run took less than ${exactly(minRuntimeSeconds)}.`;
    case 'too_often': return 'A run started long before its time.';
    case 'failed': return 'A run said that it failed.';
    default: return `It failed${reason === null ? '' : `: ${String(reason)}`}.`; // a reason that is newer than this page
  }
}

const reasons: Record<string, string> = {
  not_started: 'it did not start in time', too_slow: 'it took too long', too_fast: 'it took too little time', too_often: 'it started long before its time',
  failed: 'it said so', outage: 'its ping may have been lost by a fault of this service',
};

/** The reason of a run's outcome in a few words; empty where it needs none. */
export function whyRun({ outcome, reason, exitCode }: Schemas['MonitorRun']): string {
  if (reason === 'failed' && exitCode !== null) return `exit code ${exitCode}`;
  if (reason !== null) return reasons[reason] ?? reason;
  if (outcome === 'abandoned') return 'another began before its end was told';
  if (outcome === 'logged') return 'a log outside of a run';
  return '';
}
