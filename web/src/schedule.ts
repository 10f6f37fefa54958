// When a job runs, in a few words.

import type { Job } from './api';

export function scheduleOf(job: Pick<Job, 'cronExpression' | 'interval' | 'runAt' | 'timezone'>): string {
  if (job.cronExpression) return `${job.cronExpression} ${job.timezone}`;
  if (job.interval) return `every ${job.interval.replace(/^PT?/, '').toLowerCase().replace('t', ' ')}`;
  if (job.runAt) return 'once';
  return 'when triggered';
}
