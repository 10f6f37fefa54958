// A new job, or a change of one: a form by the contract, and the same as JSON. While
// somebody types, the API says when the job would run and what is wrong.

import { keepPreviousData, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useEffect, useId, useMemo, useRef, useState, type FormEvent } from 'react';
import { api, must, newKey, SchedulerError, type Job, type Schemas } from './api';
import { configOf, exampleOf, jobTypes, readContract, type Contract, type Schema } from './contract';
import { cronInWords } from './cron-words';
import { Occurrences } from './job';
import { put, SchemaField, type FormContext } from './schema-field';
import { can } from './session';
import { myZone } from './time';
import { Field, Loading, Problem, Title } from './ui';

type Spec = Record<string, unknown>;

const schedules = { cronExpression: 'By a cron expression', interval: 'Every so often', runAt: 'Once', trigger: 'Only when it is triggered' } as const;
type Kind = keyof typeof schedules;
const first: Record<Kind, unknown> = { cronExpression: '0 0 9 * * *', interval: 'PT1H', runAt: undefined, trigger: 'manual' };
/** Fields that stand above the others, in an order of their own. */
const placed = new Set(['name', 'description', 'tags', ...Object.keys(schedules), 'timezone', 'jobType', 'config']);

export function NewJob() {
  const { from } = getRouteApi('/jobs/new').useSearch();
  return <Loaded id={from} copy />;
}

export function EditJob() {
  const { id } = getRouteApi('/jobs/$id/edit').useParams();
  return <Loaded id={id} copy={false} />;
}

function Loaded({ id, copy }: { id: string | undefined; copy: boolean }) {
  const contract = useQuery({ queryKey: ['contract'], queryFn: ({ signal }) => readContract(signal), staleTime: Infinity });
  // What is edited does not change under the hands of who edits it: the API refuses a change of another version.
  const job = useQuery({ queryKey: ['job-to-edit', id], enabled: id !== undefined, staleTime: Infinity, gcTime: 0, refetchOnWindowFocus: false, queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/jobs/{id}', { signal, params: { path: { id: id! } } })) });
  const error = contract.error ?? job.error;
  if (error) return <Problem error={error} />;
  if (!contract.data || (id && !job.data)) return <Loading what="the form" />;
  if (!can('jobs:write')) return <Problem error={new Error('You may read jobs, but not change them.')} />;
  return <Form contract={contract.data} job={job.data} copy={copy} />;
}

/** The definition of a job, without what the service made of it. */
function specOf(contract: Contract, job: Job): Spec {
  const spec: Spec = {};
  for (const name of Object.keys(contract.components.schemas['JobSpec']?.properties ?? {})) {
    const value = (job as unknown as Spec)[name];
    if (value !== null && value !== undefined) spec[name] = value;
  }
  return spec;
}

function Form({ contract, job, copy }: { contract: Contract; job: Job | undefined; copy: boolean }) {
  const editing = job && !copy ? job : undefined;
  const start = useMemo<Spec>(() => (job ? specOf(contract, job) : { cronExpression: first.cronExpression, timezone: myZone, jobType: 'http', config: {} }), [contract, job]);
  const [spec, setSpec] = useState(start);
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  const [asJson, setAsJson] = useState(false);
  const key = useRef(newKey());
  const queries = useQueryClient();
  const navigate = useNavigate();
  const check = useCheck(useMemo(() => complete(contract, spec, touched), [contract, spec, touched]), editing);
  const save = useMutation({
    mutationFn: () => {
      const body = spec as unknown as Schemas['JobSpec'];
      return editing
        ? must(api.PUT('/api/v1/scheduler/jobs/{id}', { params: { path: { id: editing.id }, header: { 'If-Match': `"${editing.version}"` } }, body }))
        : must(api.POST('/api/v1/scheduler/jobs', { params: { header: { 'Idempotency-Key': key.current } }, body }));
    },
    onSuccess: async (saved) => {
      queries.setQueryData(['job', saved.id], saved);
      await navigate({ to: '/jobs/$id', params: { id: saved.id }, search: {} });
    },
  });
  const change = (name: string, value: unknown): void => {
    setSpec((before) => put(before, name, value));
    setTouched((before) => new Set(before).add(name));
    key.current = newKey(); // another request than the one that was sent
  };
  const context: FormContext = { contract, errorAt: (path) => errorAt(path, save.error, check.error, touched) };
  function submit(event: FormEvent): void {
    event.preventDefault();
    save.mutate();
  }
  const name = editing ? `Edit ${editing.name}` : 'New job';
  return (
    <>
      <p><Link to="/jobs" search={{}}>Jobs</Link>{editing && <> / <Link to="/jobs/$id" params={{ id: editing.id }} search={{}}><bdi>{editing.name}</bdi></Link></>}</p>
      <Title of={name} actions={<button type="button" aria-pressed={asJson} onClick={() => setAsJson(!asJson)}>{asJson ? 'As a form' : 'As JSON'}</button>}>{name}</Title>
      <form onSubmit={submit} noValidate className="two">
        <div>
          {asJson ? <AsJson spec={spec} set={(next) => { setSpec(next); setTouched(new Set(Object.keys(next))); key.current = newKey(); }} /> : <Fields spec={spec} change={change} {...context} />}
        </div>
        <aside aria-label="Check">
          <Preview check={check} touched={touched} zone={String(spec['timezone'] ?? 'UTC')} />
          {save.error && <Problem error={save.error} />}
          <div className="actions bar">
            <button className="main" disabled={save.isPending}>{editing ? 'Save as a new version' : 'Create the job'}</button>
            <Link className="button" to={editing ? '/jobs/$id' : '/jobs'} params={{ id: editing?.id ?? '' }} search={{}}>Leave without saving</Link>
          </div>
        </aside>
      </form>
    </>
  );
}

/** The definition with examples in place of what nobody has typed yet, so that the next runs show from the first key. */
function complete(contract: Contract, spec: Spec, touched: ReadonlySet<string>): Spec {
  const config = spec['config'] as Spec | undefined;
  return {
    ...spec,
    ...(!touched.has('name') && !spec['name'] && { name: 'new job' }),
    ...(config && Object.keys(config).length === 0 && { config: exampleOf(contract, String(spec['jobType'])) }),
  };
}

/** Asks the API about a definition a moment after the last key. */
function useCheck(spec: Spec, editing: Job | undefined) {
  const [settled, setSettled] = useState(spec);
  useEffect(() => {
    const wait = setTimeout(() => setSettled(spec), 300);
    return () => clearTimeout(wait);
  }, [spec]);
  return useQuery({
    queryKey: ['check', editing?.id, settled],
    placeholderData: keepPreviousData,
    gcTime: 0,
    staleTime: Infinity,
    queryFn: ({ signal }) => {
      const body = settled as unknown as Schemas['JobSpec'];
      return must(editing
        ? api.POST('/api/v1/scheduler/jobs/{id}/validate', { signal, params: { path: { id: editing.id } }, body })
        : api.POST('/api/v1/scheduler/jobs/validate', { signal, body }));
    },
  });
}

/** The reason at a path: of the last attempt to save, or, where somebody typed, of the check. */
function errorAt(path: string, saved: unknown, checked: unknown, touched: ReadonlySet<string>): string | undefined {
  const root = path.split('.')[0]!;
  for (const error of touched.has(root) ? [checked, saved] : [saved]) {
    if (!(error instanceof SchedulerError)) continue;
    const found = error.details.find((detail) => detail.field === path);
    if (found) return found.message;
  }
  return undefined;
}

function Preview({ check, touched, zone }: { check: ReturnType<typeof useCheck>; touched: ReadonlySet<string>; zone: string }) {
  const faults = check.error instanceof SchedulerError ? check.error.details.filter((detail) => touched.has(detail.field.split('.')[0]!)) : [];
  return (
    <section aria-labelledby="preview" aria-live="polite">
      <h2 id="preview">When it runs</h2>
      {check.error && faults.length > 0 && <ul className="error">{faults.map((fault) => <li key={`${fault.field} ${fault.rule}`}><code>{fault.field}</code> {fault.message}</li>)}</ul>}
      {check.error && faults.length === 0 && <p className="faint">Fill in the form: the next runs stand here.</p>}
      {check.error && !(check.error instanceof SchedulerError) && <Problem error={check.error} />}
      {!check.error && check.data && <Occurrences of={check.data.occurrences} warnings={check.data.warnings} zone={zone} />}
    </section>
  );
}

function AsJson({ spec, set }: { spec: Spec; set: (spec: Spec) => void }) {
  const [text, setText] = useState(() => JSON.stringify(spec, null, 2));
  const [wrong, setWrong] = useState<string>();
  return (
    <Field label="Definition as JSON" error={wrong} hint="As POST /jobs takes it.">
      {(field) => (
        <textarea {...field} rows={28} value={text} spellCheck={false}
          onChange={(event) => {
            setText(event.target.value);
            try {
              const parsed: unknown = JSON.parse(event.target.value);
              if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) throw new Error('a definition is an object');
              setWrong(undefined);
              set(parsed as Spec);
            } catch (error) {
              setWrong(`This is no JSON: ${(error as Error).message}`);
            }
          }} />
      )}
    </Field>
  );
}

function Fields({ spec, change, ...context }: { spec: Spec; change: (name: string, value: unknown) => void } & FormContext) {
  const all = context.contract.components.schemas['JobSpec']?.properties ?? {};
  const field = (name: string, required = false) => all[name] && <SchemaField key={name} {...context} path={name} schema={all[name]} value={spec[name]} required={required} set={(value) => change(name, value)} />;
  return (
    <>
      {field('name', true)}
      <When spec={spec} change={change} {...context} />
      <What spec={spec} change={change} {...context} />
      <details>
        <summary>Description and tags</summary>
        {field('description')}
        {field('tags')}
      </details>
      <details>
        <summary>Retries, limits, overlaps, outages</summary>
        {Object.keys(all).filter((name) => !placed.has(name)).map((name) => field(name))}
      </details>
    </>
  );
}

function When({ spec, change, ...context }: { spec: Spec; change: (name: string, value: unknown) => void } & FormContext) {
  const kinds = Object.keys(schedules) as Kind[];
  const [kind, setKind] = useState<Kind>(() => kinds.find((one) => spec[one] !== undefined) ?? 'cronExpression');
  const zones = useId();
  function choose(next: Kind): void {
    for (const one of kinds) if (one !== next) change(one, undefined);
    change(next, spec[next] ?? first[next]);
    setKind(next);
  }
  return (
    <fieldset>
      <legend>When</legend>
      {kinds.map((one) => (
        <label key={one} className="beside"><input type="radio" name="kind" checked={kind === one} onChange={() => choose(one)} /> {schedules[one]}</label>
      ))}
      {kind === 'cronExpression' && (
        <Field label="Cron expression" required error={context.errorAt('cronExpression')} hint={<Sentence of={String(spec['cronExpression'] ?? '')} />}>
          {(field) => <input {...field} className="mono" value={String(spec['cronExpression'] ?? '')} spellCheck={false} onChange={(event) => change('cronExpression', event.target.value)} />}
        </Field>
      )}
      {kind === 'interval' && (
        <Field label="Interval" required error={context.errorAt('interval')} hint={<>Such as <code>PT30S</code>, <code>90m</code> or <code>P1D</code>.</>}>
          {(field) => <input {...field} className="mono" value={String(spec['interval'] ?? '')} spellCheck={false} onChange={(event) => change('interval', event.target.value)} />}
        </Field>
      )}
      {kind === 'runAt' && (
        <Field label={`Time (on the clock of ${myZone})`} required error={context.errorAt('runAt')}>
          {(field) => <input {...field} type="datetime-local" step={1} value={localOf(spec['runAt'])} onChange={(event) => change('runAt', event.target.value ? new Date(event.target.value).toISOString() : undefined)} />}
        </Field>
      )}
      {kind === 'cronExpression' && (
        <Field label="Zone" error={context.errorAt('timezone')} hint="On whose clock the expression is read.">
          {(field) => (
            <>
              <input {...field} list={zones} value={String(spec['timezone'] ?? '')} spellCheck={false} onChange={(event) => change('timezone', event.target.value || undefined)} />
              <datalist id={zones}>{['UTC', ...Intl.supportedValuesOf('timeZone')].map((zone) => <option key={zone} value={zone} />)}</datalist>
            </>
          )}
        </Field>
      )}
    </fieldset>
  );
}

function localOf(at: unknown): string {
  const moment = new Date(String(at ?? ''));
  return Number.isNaN(moment.getTime()) ? '' : new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** An expression in words, and what its fields are. */
function Sentence({ of }: { of: string }) {
  const words = cronInWords(of);
  return <>{words && `${words}. `}Second, minute, hour, day of month, month, day of week.</>;
}

/** What has to be given, then the rest. */
function inOrder(schema: Schema): [string, Schema][] {
  const needed = (name: string): number => (schema.required?.includes(name) ? 0 : 1);
  return Object.entries(schema.properties ?? {}).sort(([a], [b]) => needed(a) - needed(b));
}

function What({ spec, change, ...context }: { spec: Spec; change: (name: string, value: unknown) => void } & FormContext) {
  const type = String(spec['jobType'] ?? '');
  const schema = configOf(context.contract, type);
  const before = useRef<Record<string, unknown>>({});
  return (
    <fieldset>
      <legend>What</legend>
      <Field label="Job type" required error={context.errorAt('jobType')}>
        {(field) => (
          <select {...field} value={type}
            onChange={(event) => {
              before.current[type] = spec['config'];
              change('jobType', event.target.value);
              change('config', before.current[event.target.value] ?? {});
            }}>
            {jobTypes(context.contract).map((one) => <option key={one}>{one}</option>)}
          </select>
        )}
      </Field>
      <div key={type}>
        {schema?.properties
          ? inOrder(schema).map(([name, one]) => {
            const config = (spec['config'] ?? {}) as Spec;
            return <SchemaField key={name} {...context} path={`config.${name}`} schema={one} value={config[name]} required={schema.required?.includes(name) ?? false} set={(value) => change('config', put(config, name, value))} />;
          })
          : <SchemaField {...context} path="config" schema={{}} value={spec['config']} set={(value) => change('config', value)} />}
        {context.errorAt('config') && <p className="error">{context.errorAt('config')}</p>}
      </div>
      <p className="hint faint">Write <code>{'{{secret:name}}'}</code> where a stored secret belongs.</p>
    </fieldset>
  );
}
