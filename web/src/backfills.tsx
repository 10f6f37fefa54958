// Backfills of a job: past times that run again, and how far they are.

import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, must, newKey, type Job, type Schemas } from './api';
import { usePages } from './pages';
import { can } from './session';
import { Empty, Field, FormDialog, Loading, More, Problem, Rows, Status, Time } from './ui';

type Backfill = Schemas['BackfillSummary'];

export function Backfills({ job }: { job: Job }) {
  const [asked, setAsked] = useState<'make' | Backfill | null>(null);
  const queries = useQueryClient();
  const { query, items } = usePages(['backfills', job.id], (page, signal) => must(api.GET('/api/v1/scheduler/jobs/{id}/backfills', { signal, params: { path: { id: job.id }, query: { ...page, outcomes: true } } })),
    (shown) => (shown.some((one) => one.status === 'running') ? 2 : 30));
  const close = (): void => {
    setAsked(null);
    void queries.invalidateQueries({ queryKey: ['backfills', job.id] });
  };
  return (
    <>
      {can('jobs:trigger') && <p><button type="button" className="main" onClick={() => setAsked('make')}>Run past times again</button></p>}
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="backfills" />}
      {query.data && items.length === 0 && <Empty title="There are no backfills of this job."><p>A backfill runs the times again that the job’s schedule has in a past range.</p></Empty>}
      {items.length > 0 && (
        <Rows label="Backfills" head={['State', 'Range', 'Progress', 'Asked for', '.Actions']}>
          {items.map((one) => (
            <tr key={one.id}>
              <td><Status of={one.status} />{one.heldBy && one.status === 'running' && <div className="warn">held by {one.heldBy}</div>}</td>
              <td><Time at={one.from} zone={job.timezone} /> – <Time at={one.to} zone={job.timezone} /></td>
              <td>
                <progress max={100} value={one.progress} aria-label={`Progress of the backfill from ${one.from}`} /> {one.progress} %
                <div className="faint">{one.created.toLocaleString('en')} of {one.total.toLocaleString('en')} executions made, at most {one.ratePerMinute} a minute</div>
                {one.outcomes && <Outcomes of={one.outcomes} />}
              </td>
              <td><Time at={one.createdAt} zone={job.timezone} /> by <bdi>{one.createdBy}</bdi></td>
              <td>{one.status === 'running' && can('jobs:trigger') && <button type="button" className="danger" onClick={() => setAsked(one)}>Cancel<span className="unseen"> the backfill from {one.from}</span></button>}</td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="Older backfills" />
      {asked === 'make' && <Make job={job} onClose={close} />}
      {asked && asked !== 'make' && (
        <FormDialog title="Cancel this backfill" submit="Cancel this backfill" danger onClose={close}
          act={(form) => {
            const reason = String(form.get('reason'));
            return must(api.POST('/api/v1/scheduler/jobs/{id}/backfills/{backfillId}/cancel', { params: { path: { id: job.id, backfillId: asked.id } }, body: reason ? { reason } : {} }));
          }}>
          <p>No further execution is made, those that wait are cancelled, and those that run are asked to end.</p>
          <Field label="Reason">{(field) => <input {...field} name="reason" maxLength={500} />}</Field>
        </FormDialog>
      )}
    </>
  );
}

/** What became of the executions so far. */
function Outcomes({ of }: { of: Schemas['BackfillOutcomes'] }) {
  return <div>{Object.entries(of).filter(([, count]) => count > 0).map(([name, count]) => <span key={name}><Status of={name} /> {count.toLocaleString('en')}{' '}</span>)}</div>;
}

const utcOf = (local: FormDataEntryValue | null): string => (local ? new Date(String(local)).toISOString() : '');

function requestOf(form: FormData): Schemas['BackfillRequest'] {
  return { from: utcOf(form.get('from')), to: utcOf(form.get('to')), ratePerMinute: Number(form.get('rate')) } as Schemas['BackfillRequest'];
}

/** Asks the API first how many executions that makes. */
function Make({ job, onClose }: { job: Job; onClose: () => void }) {
  const [planned, setPlanned] = useState<Schemas['BackfillPlan'] | null>(null);
  const [key] = useState(newKey);
  const plan = useMutation({
    mutationFn: async (form: FormData) => (await must(api.POST('/api/v1/scheduler/jobs/{id}/backfills', { params: { path: { id: job.id } }, body: { ...requestOf(form), dryRun: true } }))) as Schemas['BackfillPlan'],
    onSuccess: setPlanned,
  });
  return (
    <FormDialog title="Run past times again" submit={planned ? `Make ${planned.total.toLocaleString('en')} ${planned.total === 1 ? 'execution' : 'executions'}` : 'Make the executions'} onClose={onClose}
      act={(form) => must(api.POST('/api/v1/scheduler/jobs/{id}/backfills', { params: { path: { id: job.id }, header: { 'Idempotency-Key': key } }, body: requestOf(form) }))}>
      <p>Each time that the schedule, as it is now, has in the range becomes an execution, whatever ran then.</p>
      <Field label="From (my time)" required>{(field) => <input {...field} name="from" type="datetime-local" required onChange={() => setPlanned(null)} />}</Field>
      <Field label="To (my time), not included" required>{(field) => <input {...field} name="to" type="datetime-local" required onChange={() => setPlanned(null)} />}</Field>
      <Field label="Executions a minute, at most" required>{(field) => <input {...field} name="rate" type="number" min={1} max={6000} defaultValue={60} required />}</Field>
      {plan.error && <Problem error={plan.error} />}
      <p role="status">{planned && (planned.total === 0 ? 'The schedule has no time in this range.' : <>{planned.total.toLocaleString('en')} executions, the first of <Time at={planned.firstAt} zone={job.timezone} />, the last of <Time at={planned.lastAt} zone={job.timezone} /></>)}</p>
      <p><button type="button" disabled={plan.isPending} onClick={(event) => { const form = event.currentTarget.form!; if (form.reportValidity()) plan.mutate(new FormData(form)); }}>How many are these?</button></p>
    </FormDialog>
  );
}
