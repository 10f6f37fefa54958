// One execution: what happened in a sentence, its attempts in order, its result.

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState, type ReactNode } from 'react';
import { again, api, must, newKey, type Execution, type Schemas } from './api';
import { Output } from './output';
import { can } from './session';
import { duration } from './time';
import { Timeline } from './timeline';
import { Dialog, Facts, Field, Json, Loading, Problem, Status, Time, Title } from './ui';

const route = getRouteApi('/executions/$id');
const lasting = new Set(['completed', 'failed', 'cancelled', 'skipped', 'missed']);

export function ExecutionScreen() {
  const { id } = route.useParams();
  const query = useQuery({
    queryKey: ['execution', id],
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/executions/{id}', { signal, params: { path: { id } } })),
    refetchInterval: (asked) => (asked.state.status === 'error' ? again(asked) : asked.state.data && lasting.has(asked.state.data.status) ? false : 2_000),
  });
  const run = query.data;
  if (!run) return query.error ? <Problem error={query.error} again={() => void query.refetch()} /> : <Loading what="the execution" />;
  return (
    <>
      <p><Link to="/executions" search={{}}>Executions</Link> / <Link to="/jobs/$id" params={{ id: run.jobId }} search={{}}><bdi>{run.jobName}</bdi></Link></p>
      <Title of={`${run.jobName}: ${run.status}`} actions={<Actions run={run} />}>{run.jobName}</Title>
      {query.error && <Problem error={query.error} />}
      <p className="big"><Status of={run.status} /> {sentence(run)}</p>
      {run.status === 'running' && (run.progress > 0 || run.progressMessage) && <p><label>Progress <progress max={100} value={run.progress} /> {run.progress} %</label> <bdi>{run.progressMessage}</bdi></p>}
      {run.status !== 'skipped' && run.status !== 'missed' && <Timeline run={run} finished={lasting.has(run.status)} />}
      {run.errorMessage && <section aria-labelledby="error"><h2 id="error">Error{run.errorType && <> {run.errorType}</>}</h2><Json label="Error message" value={run.errorMessage} />{run.errorStack && <Json label="Where it happened" value={run.errorStack} />}</section>}
      <div className="two">
        <section aria-labelledby="attempts"><h2 id="attempts">Attempts</h2><Attempts run={run} /></section>
        <section aria-labelledby="facts"><h2 id="facts">Facts</h2><Facts of={factsOf(run)} /></section>
      </div>
      {run.attempts.length > 0 && <section aria-labelledby="output"><h2 id="output">Output</h2><Output run={run} finished={lasting.has(run.status)} /></section>}
      {run.result !== null && run.result !== undefined && <section aria-labelledby="result"><h2 id="result">Result</h2><Json label="Result as JSON" value={run.result} /></section>}
      {run.parameters && <section aria-labelledby="parameters"><h2 id="parameters">Parameters of this run</h2><Json label="Parameters as JSON" value={run.parameters} /></section>}
    </>
  );
}

const waits: Record<NonNullable<Execution['waitingOn']>['reason'], string> = {
  cancelling: 'it is cancelled soon', retry: 'for its next attempt', rate: 'for its turn: late executions start at a rate', delayed: 'for its time',
  no_worker: 'for a worker that runs its job type', job_limit: 'for a run of the same job to finish', concurrency_key: 'for another execution with the same concurrency key',
  type_limit: 'for the limit of its job type', tenant_limit: 'for the tenant’s limit of executions at once', callback: 'for the report of its target', circuit_breaker: 'for its target: calls to the host fail, so they are held back until one succeeds', storage: 'for its outcome to be stored', dispatching: 'for a worker',
};

/** What happened, in one sentence. */
export function sentence(run: Execution): ReactNode {
  const attempts = run.attempts.length;
  const late = run.startedAt ? Math.max(0, Date.parse(run.startedAt) - Date.parse(run.scheduledAt)) : null;
  const started = late === null ? '' : late < 1000 ? 'Started on time; ' : `Started ${duration(late)} late; `;
  const failures = run.attempts.filter((attempt) => attempt.status === 'failed').length;
  switch (run.status) {
    case 'completed':
      return `${started}completed${attempts > 1 ? ` on attempt ${attempts} after ${failures === 1 ? 'one failure' : `${failures} failures`}` : ''} in ${duration(run.durationMs)}.`;
    case 'failed':
      return `${started}failed${attempts > 1 ? ` ${failures} times` : ''}${run.errorType ? ` with ${run.errorType}` : ''}.`;
    case 'running':
      return `${started}attempt ${Math.max(1, attempts)} of ${run.maxAttempts} ${run.waitingOn ? `waits ${waits[run.waitingOn.reason]}` : 'is running'}${run.cancelRequested ? '; its end was asked for' : ''}.`;
    case 'cancelled':
      return `Cancelled${run.cancelledBy ? ` by ${run.cancelledBy}` : ''}${run.reason ? `: ${run.reason}` : ''}.`;
    case 'skipped':
    case 'missed':
      return `It did not run${run.missedCount && run.missedCount > 1 ? `, with ${run.missedCount - 1} scheduled times after it` : ''}${run.reason ? `: ${run.reason}` : ''}.`;
    default: {
      const waiting = run.waitingOn;
      const full = waiting?.limit ? ` (${waiting.used} of ${waiting.limit})` : '';
      return <>Waits {waiting ? waits[waiting.reason] : 'to start'}{full}{waiting?.until && <>, until <Time at={waiting.until} /></>}{failures > 0 && `, after ${failures} failed ${failures === 1 ? 'attempt' : 'attempts'}`}.</>;
    }
  }
}

function Attempts({ run }: { run: Execution }) {
  if (run.attempts.length === 0) return <p className="faint">None yet.</p>;
  return (
    <ol className="attempts">
      {run.attempts.map((attempt) => (
        <li key={attempt.number}>
          <Status of={attempt.status} /> <Time at={attempt.startedAt} /> – {attempt.endedAt ? `took ${duration(attempt.durationMs)}` : 'runs still'}
          {attempt.errorMessage && <p className="bad">{attempt.errorType}: {attempt.errorMessage}</p>}
          {attempt.workerId && <p className="faint">Worker <code>{attempt.workerId}</code></p>}
        </li>
      ))}
    </ol>
  );
}

const link = (id: string): ReactNode => <Link to="/executions/$id" params={{ id }}>{id}</Link>;

function factsOf(run: Execution): [string, ReactNode][] {
  const facts: [string, ReactNode][] = [
    ['Scheduled', <Time key="at" at={run.scheduledAt} />],
    ['Started', <Time key="start" at={run.startedAt} />],
    ['Finished', <Time key="end" at={run.completedAt} />],
    ['Made by', <>{run.triggerType}{run.triggeredBy && <>, {run.triggeredBy}</>}</>],
    ['Attempts', `${run.attempts.length} of at most ${run.maxAttempts}`],
    ['Version of the job', <Link key="version" to="/jobs/$id" params={{ id: run.jobId }} search={{ tab: 'versions', version: run.jobVersion }}>{run.jobVersion}</Link>],
    ['Id', <code key="id">{run.id}</code>],
  ];
  if (run.retryOf) facts.push(['Repeats', link(run.retryOf)]);
  if (run.retriedAs) facts.push(['Repeated as', link(run.retriedAs)]);
  if (run.nextAttemptAt) facts.push(['Next attempt', <Time key="next" at={run.nextAttemptAt} />]);
  return facts;
}

function Actions({ run }: { run: Execution }) {
  const [asking, setAsking] = useState(false);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const retry = useMutation({
    mutationFn: () => must(api.POST('/api/v1/scheduler/executions/{id}/retry', { params: { path: { id: run.id }, header: { 'Idempotency-Key': newKey() } } })) as Promise<Schemas['Execution']>,
    onSuccess: (made) => navigate({ to: '/executions/$id', params: { id: made.id } }),
  });
  if (!can('executions:control')) return null;
  return (
    <>
      {retry.error && <Problem error={retry.error} />}
      {lasting.has(run.status)
        ? <button type="button" className="main" disabled={retry.isPending} onClick={() => retry.mutate()}>Run it again</button>
        : <button type="button" className="danger" disabled={run.cancelRequested} onClick={() => setAsking(true)}>Cancel it</button>}
      {asking && <Cancel run={run} onClose={() => { setAsking(false); void queries.invalidateQueries({ queryKey: ['execution', run.id] }); }} />}
    </>
  );
}

function Cancel({ run, onClose }: { run: Execution; onClose: () => void }) {
  const [reason, setReason] = useState('');
  const cancel = useMutation({
    mutationFn: () => must(api.POST('/api/v1/scheduler/executions/{id}/cancel', { params: { path: { id: run.id } }, body: reason ? { reason } : {} })),
    onSuccess: onClose,
  });
  return (
    <Dialog title="Cancel this execution" onClose={onClose}>
      <p>{run.status === 'running' ? 'It is asked to end, and no attempt follows.' : 'It does not start any more.'}</p>
      <Field label="Reason">{(props) => <input {...props} value={reason} maxLength={500} onChange={(event) => setReason(event.target.value)} />}</Field>
      {cancel.error && <Problem error={cancel.error} />}
      <div className="actions">
        <button type="button" className="danger" disabled={cancel.isPending} onClick={() => cancel.mutate()}>Cancel this execution</button>
        <button type="button" onClick={onClose}>Leave it as it is</button>
      </div>
    </Dialog>
  );
}
