// What the time of an execution went to, from its scheduled time on. It is asked for when
// somebody wants to know.

import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { again, api, must, type Execution, type Schemas } from './api';
import { duration } from './time';
import { Loading, Problem, Rows, Status, Time } from './ui';

type Phase = Schemas['TimelinePhase'];

const names: Record<Phase['kind'], string> = {
  promotion: 'waited to be promoted', delay: 'might start only later', limit: 'waited for a limit', backlog: 'waited behind earlier executions',
  queue: 'waited for a worker', attempt: 'ran', retry: 'waited for its next attempt',
};
const tones: Record<Phase['kind'], string> = { promotion: 'calm', delay: 'calm', limit: 'warn', backlog: 'warn', queue: 'calm', attempt: 'busy', retry: 'warn' };

export function Timeline({ run, finished }: { run: Execution; finished: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>What its time went to</summary>
      {open && <Phases run={run} finished={finished} />}
    </details>
  );
}

function Phases({ run, finished }: { run: Execution; finished: boolean }) {
  const query = useQuery({
    queryKey: ['timeline', run.id, run.status, run.attempts.length],
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/executions/{id}/timeline', { signal, params: { path: { id: run.id } } })),
    refetchInterval: (asked) => (finished ? false : asked.state.status === 'error' ? again(asked) : 5_000),
  });
  if (query.error) return <Problem error={query.error} again={() => void query.refetch()} />;
  if (!query.data) return <Loading what="the timeline" />;
  const { summary, phases, partial } = query.data;
  const first = Math.min(...phases.map((phase) => Date.parse(phase.startedAt)));
  const whole = Math.max(1, ...phases.map((phase) => Date.parse(phase.startedAt) + phase.durationMs - first));
  return (
    <>
      <p>{summary}</p>
      {partial && <p className="note">More executions ran beside it than are read: what waited for a worker may have waited for a limit or behind others.</p>}
      {phases.length > 0 && (
        <Rows label="Timeline" head={['From', 'It', 'For', '.Share of the time']}>
          {phases.map((phase) => (
            <tr key={`${phase.kind} ${phase.startedAt}`}>
              <td><Time at={phase.startedAt} /></td>
              <td>{names[phase.kind]}{phase.limit && <> <code>{phase.limit}</code></>}{phase.attempt !== null && ` (attempt ${phase.attempt})`}{phase.status && <> <Status of={phase.status} /></>}</td>
              <td>{duration(phase.durationMs)}{!phase.endedAt && ' so far'}</td>
              <td>
                <svg className={`phase ${tones[phase.kind]}`} viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
                  <rect x={((Date.parse(phase.startedAt) - first) / whole) * 1000} width={Math.max(4, (phase.durationMs / whole) * 1000)} height={10} />
                </svg>
              </td>
            </tr>
          ))}
        </Rows>
      )}
    </>
  );
}
