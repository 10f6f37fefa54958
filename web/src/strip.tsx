// The last runs of a job as bars.

import type { Schemas } from './api';
import { duration } from './time';

const tones: Record<string, string> = { completed: 'good', failed: 'bad', missed: 'warn', skipped: 'calm', cancelled: 'calm' };

type Run = Pick<Schemas['RecentRun'], 'id' | 'status' | 'scheduledAt' | 'durationMs'>;

/** How long the newest runs took, on a logarithmic scale; those that did not complete have a notch, so that colour is not all. The oldest comes first. */
export function Strip({ runs, small }: { runs: Run[]; small?: boolean }) {
  const height = (ms: number | null): number => Math.min(30, 4 + Math.log10(Math.max(1, ms ?? 1)) * 5);
  const x = (index: number): number => (30 - runs.length + index) * 16; // the newest stands at the right end
  return (
    <svg className={small ? 'strip small' : 'strip'} viewBox="0 0 480 36" preserveAspectRatio="none" role="img" aria-label={summary(runs)}>
      {runs.map((run, index) => (
        <g key={run.id} className={tones[run.status] ?? 'busy'}>
          <title>{`${run.scheduledAt}: ${run.status}, ${duration(run.durationMs)}`}</title>
          <rect x={x(index) + 2} width={12} y={34 - height(run.durationMs)} height={height(run.durationMs)} />
          {run.status !== 'completed' && <rect x={x(index) + 5} width={6} y={0} height={3} />}
        </g>
      ))}
    </svg>
  );
}

/** The same in words. */
function summary(runs: Run[]): string {
  const failed = runs.filter((run) => run.status === 'failed').length;
  return `The last ${runs.length} runs, the newest on the right: ${failed} failed`;
}
