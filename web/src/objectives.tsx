// Objectives: which share of executions has to be good, and what is left of the error budget.

import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, every, must, type Schemas } from './api';
import { can } from './session';
import { Empty, Field, FormDialog, Loading, Problem, Rows, Time, Title } from './ui';

type Objective = Schemas['Objective'];
type Asked = { make: true } | { edit: Objective } | { remove: Objective };

const kinds: Record<string, string> = { success: 'succeed', onTime: 'start on time' };
const percent = (share: number): string => `${+(share * 100).toFixed(3)} %`;
const rate = (value: number | null): string => (value === null ? '–' : value.toLocaleString('en', { maximumFractionDigits: 1 }));

export function Objectives() {
  const [asked, setAsked] = useState<Asked | null>(null);
  const queries = useQueryClient();
  const query = useQuery({ queryKey: ['objectives'], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/objectives', { signal })), ...every(30) });
  const close = (): void => {
    setAsked(null);
    void queries.invalidateQueries({ queryKey: ['objectives'] });
  };
  const items = query.data?.items ?? [];
  const changes = can('jobs:write');
  return (
    <>
      <Title of="Objectives" actions={changes && <button type="button" className="main" onClick={() => setAsked({ make: true })}>New objective</button>}>Objectives</Title>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="objectives" />}
      {query.data && items.length === 0 && <Empty title="There are no objectives yet."><p>An objective says which share of executions has to succeed or to start on time; its error budget is the share that may not.</p></Empty>}
      {items.length > 0 && (
        <Rows label="Objectives" head={['Name', 'Asks', 'State', 'Good', 'Budget left', 'Burn rate: 1 h', '6 h', 'Window', '.Actions']}>
          {items.map((one) => (
            <tr key={one.id}>
              <td><bdi>{one.name}</bdi><div className="faint">counted to <Time at={one.countedTo} short /></div></td>
              <td>{percent(one.target)} of {one.tag === null ? <>the job <code>{one.jobId}</code></> : <>jobs with the tag <bdi>{one.tag}</bdi></>} {kinds[one.kind] ?? one.kind}{one.thresholdMs !== null && <> within {one.thresholdMs.toLocaleString('en')} ms</>}, over {one.windowDays} d</td>
              <td><State of={one} /></td>
              <td>{one.share === null ? '–' : percent(one.share)}<div className="faint">{one.bad.toLocaleString('en')} bad of {(one.good + one.bad).toLocaleString('en')}</div></td>
              <td>{one.budgetLeft === null ? '–' : percent(one.budgetLeft)}</td>
              <td>{rate(one.burnRateHour)}</td>
              <td>{rate(one.burnRateSixHours)}</td>
              <td>{rate(one.burnRate)}</td>
              <td>{changes && <div className="actions"><button type="button" onClick={() => setAsked({ edit: one })}>Change<span className="unseen"> {one.name}</span></button><button type="button" className="danger" onClick={() => setAsked({ remove: one })}>Delete<span className="unseen"> {one.name}</span></button></div>}</td>
            </tr>
          ))}
        </Rows>
      )}
      {items.length > 0 && <p className="faint">At a burn rate of 1 the budget lasts exactly the window; at 14.4 one of 30 days lasts two.</p>}
      {asked && 'make' in asked && <Edit stored={null} onClose={close} />}
      {asked && 'edit' in asked && <Edit stored={asked.edit} onClose={close} />}
      {asked && 'remove' in asked && (
        <FormDialog title={`Delete the objective ${asked.remove.name}`} submit="Delete this objective" danger onClose={close}
          act={() => must(api.DELETE('/api/v1/scheduler/objectives/{id}', { params: { path: { id: asked.remove.id } } }) as Promise<{ response: Response }>)}>
          <p>Its counts go with it.</p>
        </FormDialog>
      )}
    </>
  );
}

/** In a word, with a sign beside the colour; the rates are those that operators are alerted at. */
function State({ of: { budgetLeft, burnRateHour, burnRateSixHours } }: { of: Objective }) {
  if (budgetLeft === null) return <span className="faint">○ nothing counted yet</span>;
  if (budgetLeft <= 0) return <span className="bad">✕ no budget left</span>;
  if ((burnRateHour ?? 0) > 14.4) return <span className="bad">▲ burns fast</span>;
  if ((burnRateSixHours ?? 0) > 6) return <span className="warn">△ burns</span>;
  return <span>● met</span>;
}

function Edit({ stored, onClose }: { stored: Objective | null; onClose: () => void }) {
  const [kind, setKind] = useState<Schemas['ObjectiveKind']>(stored?.kind ?? 'success');
  const [by, setBy] = useState(stored?.jobId ? 'jobId' : 'tag');
  const save = (form: FormData): Promise<unknown> => {
    const [of, late] = [String(form.get('of') ?? '').trim(), Number(form.get('threshold') ?? 0)];
    const fixed = stored
      ? { kind: stored.kind, ...(stored.jobId && { jobId: stored.jobId }), ...(stored.tag && { tag: stored.tag }), ...(stored.thresholdMs && { thresholdMs: stored.thresholdMs }) }
      : { kind, ...(by === 'jobId' ? { jobId: of } : { tag: of }), ...(kind === 'onTime' && { thresholdMs: late }) };
    const body = { ...fixed, name: String(form.get('name')), target: +(Number(form.get('target')) / 100).toFixed(7), windowDays: Number(form.get('windowDays')) };
    return stored
      ? must(api.PUT('/api/v1/scheduler/objectives/{id}', { params: { path: { id: stored.id }, header: { 'If-Match': `"${stored.version}"` } }, body }))
      : must(api.POST('/api/v1/scheduler/objectives', { body }));
  };
  return (
    <FormDialog title={stored ? `Change ${stored.name}` : 'New objective'} submit={stored ? 'Save the objective' : 'Create the objective'} act={save} onClose={onClose}>
      <Field label="Name" required>{(field) => <input {...field} name="name" required maxLength={200} defaultValue={stored?.name ?? ''} autoComplete="off" />}</Field>
      {!stored && (
        <>
          <Field label="Executions have to">{(field) => <select {...field} value={kind} onChange={(event) => setKind(event.target.value === 'onTime' ? 'onTime' : 'success')}>{Object.entries(kinds).map(([value, text]) => <option key={value} value={value}>{text}</option>)}</select>}</Field>
          <Field label="Of">{(field) => <select {...field} value={by} onChange={(event) => setBy(event.target.value)}><option value="tag">all jobs with a tag</option><option value="jobId">one job</option></select>}</Field>
          <Field label={by === 'tag' ? 'Tag' : 'Id of the job'} required>{(field) => <input {...field} name="of" required maxLength={50} spellCheck={false} autoComplete="off" />}</Field>
          {kind === 'onTime' && <Field label="At most so late, in milliseconds" required>{(field) => <input {...field} name="threshold" type="number" required min={1} max={86_400_000} defaultValue={5000} />}</Field>}
        </>
      )}
      <Field label="Target in percent" required hint="The share that has to be good.">{(field) => <input {...field} name="target" type="number" required min={50} max={99.999} step="any" defaultValue={stored ? +(stored.target * 100).toFixed(5) : 99} />}</Field>
      <Field label="Window in days" required>{(field) => <input {...field} name="windowDays" type="number" required min={1} max={31} defaultValue={stored?.windowDays ?? 30} />}</Field>
      {stored && <p className="hint faint">What was counted stays, and is judged by the new target over the new window. What is counted stays too: make another objective for that.</p>}
    </FormDialog>
  );
}
