// The verbs for jobs, one by one and many at once.

export const verbs = {
  pause: { name: 'Pause', past: 'paused', needs: 'jobs:control', reason: true, danger: false, path: '/api/v1/scheduler/jobs/bulk/pause' },
  resume: { name: 'Resume', past: 'resumed', needs: 'jobs:control', reason: false, danger: false, path: '/api/v1/scheduler/jobs/bulk/resume' },
  trigger: { name: 'Run now', past: 'triggered', needs: 'jobs:trigger', reason: false, danger: false, path: '/api/v1/scheduler/jobs/bulk/trigger' },
  stop: { name: 'Stop', past: 'stopped', needs: 'jobs:control', reason: true, danger: true, path: '/api/v1/scheduler/jobs/bulk/stop' },
  delete: { name: 'Delete', past: 'deleted', needs: 'jobs:write', reason: true, danger: true, path: '/api/v1/scheduler/jobs/bulk/delete' },
} as const;

export type Verb = keyof typeof verbs;

/** What a verb does to a job, for who is about to do it. */
export const effects: Record<Verb, string> = {
  pause: 'No scheduled time becomes a run until somebody resumes the job. What runs goes on.',
  resume: 'The schedule fires again. The job’s misfire policy says what happens to the times that the pause held back.',
  trigger: 'It runs once, now, beside its schedule.',
  stop: 'The job becomes inactive, what waits is cancelled, and what runs is asked to end.',
  delete: 'The job is gone, what waits is cancelled, and what runs is asked to end. Its executions stay readable for a while.',
};
