// The form of a monitor. Its bounds are those of the contract.

import { useQuery } from '@tanstack/react-query';
import { useId, useState } from 'react';
import { api, must, type Schemas } from './api';
import { readContract, resolve, type Schema } from './contract';
import { cronInWords } from './cron-words';
import type { Monitor } from './monitor-words';
import { exactly, myZone } from './time';
import { Dialog, Field, FormDialog, Loading, Problem } from './ui';

interface Props {
  stored: Monitor | null;
  onClose: () => void;
  onStored: (stored: Monitor) => void;
}
type Bounds = Record<string, Schema>;
type Kind = 'cron' | 'interval';

const units: [name: string, seconds: number][] = [['seconds', 1], ['minutes', 60], ['hours', 3600], ['days', 86_400]];

export function MonitorForm({ stored, onClose, onStored }: Props) {
  const [before] = useState(stored); // a change of what is shown here, not of what was stored meanwhile
  const contract = useQuery({ queryKey: ['contract'], queryFn: ({ signal }) => readContract(signal), staleTime: Infinity });
  if (contract.data) return <Form stored={before} bounds={resolve(contract.data, { $ref: '#/components/schemas/MonitorSpec' }).properties ?? {}} onClose={onClose} onStored={onStored} />;
  return (
    <Dialog title={before ? `Change ${before.name}` : 'New monitor'} onClose={onClose}>
      {contract.error ? <Problem error={contract.error} again={() => void contract.refetch()} /> : <Loading what="the form" />}
    </Dialog>
  );
}

function specOf(form: FormData, kind: Kind): Schemas['MonitorSpec'] {
  const seconds = (name: string): number => Math.round(Number(form.get(name)) * Number(form.get(`${name}Unit`)));
  return {
    name: String(form.get('name')), tags: String(form.get('tags')).split('\n').map((tag) => tag.trim()).filter(Boolean),
    ...(kind === 'cron' ? { cronExpression: String(form.get('cronExpression')).trim(), timezone: String(form.get('timezone')).trim() } : { intervalSeconds: seconds('intervalSeconds') }),
    startGraceSeconds: seconds('startGraceSeconds'), completionGraceSeconds: seconds('completionGraceSeconds'),
    maxRuntimeSeconds: seconds('maxRuntimeSeconds'), minRuntimeSeconds: seconds('minRuntimeSeconds'),
    alertTooOften: form.has('alertTooOften'), extendOnLog: form.has('extendOnLog'),
    failureThreshold: Number(form.get('failureThreshold')), recoveryThreshold: Number(form.get('recoveryThreshold')),
  };
}

function Form({ stored, bounds, onClose, onStored }: Props & { bounds: Bounds }) {
  const [kind, setKind] = useState<Kind>(stored && stored.cronExpression === null ? 'interval' : 'cron');
  const put = async (form: FormData): Promise<void> => {
    const body = specOf(form, kind);
    onStored(stored
      ? await must(api.PUT('/api/v1/scheduler/monitors/{id}', { params: { path: { id: stored.id }, header: { 'If-Match': `"${stored.version}"` } }, body }))
      : await must(api.POST('/api/v1/scheduler/monitors', { body })));
  };
  const amount = (name: keyof Schemas['MonitorSpec'] & keyof Monitor, label: string, hint: string) => <Amount name={name} label={label} hint={hint} bounds={bounds[name]} value={stored?.[name]} />;
  const count = (name: 'failureThreshold' | 'recoveryThreshold', label: string) => (
    <Field label={label} required hint={`${bounds[name]?.minimum ?? 1} to ${bounds[name]?.maximum ?? 100}.`}>{(field) => <input {...field} name={name} type="number" required step={1} min={bounds[name]?.minimum} max={bounds[name]?.maximum} defaultValue={stored?.[name] ?? Number(bounds[name]?.default ?? 1)} />}</Field>
  );
  return (
    <FormDialog title={stored ? `Change ${stored.name}` : 'New monitor'} submit={stored ? 'Save the monitor' : 'Create the monitor'} act={put} onClose={onClose}>
      <Field label="Name" required>{(field) => <input {...field} name="name" required maxLength={bounds['name']?.maxLength} defaultValue={stored?.name ?? ''} autoComplete="off" />}</Field>
      <When kind={kind} setKind={setKind} stored={stored} bounds={bounds} />
      <fieldset>
        <legend>What a run may take</legend>
        {amount('startGraceSeconds', 'Start grace', 'How late a run may start.')}
        {amount('maxRuntimeSeconds', 'Longest runtime', 'How long a run should take at most.')}
        {amount('completionGraceSeconds', 'Completion grace', 'How much longer than the longest runtime a run that said “start” may take.')}
        {amount('minRuntimeSeconds', 'Shortest runtime', 'A run that said “start” and took less failed; 0: none is too fast.')}
        <label className="beside"><input type="checkbox" name="alertTooOften" defaultChecked={stored?.alertTooOften ?? false} /> A run that starts long before its time is a failure</label>
        <label className="beside"><input type="checkbox" name="extendOnLog" defaultChecked={stored?.extendOnLog ?? false} /> Each “log” ping extends the time of a run by the completion grace</label>
      </fieldset>
      <fieldset>
        <legend>Down and up again</legend>
        {count('failureThreshold', 'Failures in a row that take it down')}
        {count('recoveryThreshold', 'Successes in a row that bring it up again')}
      </fieldset>
      <Field label="Tags, one a line" hint="By which lists and notifications choose monitors.">{(field) => <textarea {...field} name="tags" rows={2} defaultValue={stored?.tags.join('\n') ?? ''} />}</Field>
    </FormDialog>
  );
}

/** Exactly one of a cron expression with its zone, and an interval. */
function When({ kind, setKind, stored, bounds }: { kind: Kind; setKind: (kind: Kind) => void; stored: Monitor | null; bounds: Bounds }) {
  const [expression, setExpression] = useState(stored?.cronExpression ?? '0 2 * * *');
  const zones = useId();
  return (
    <fieldset>
      <legend>When a run should start</legend>
      <label className="beside"><input type="radio" name="kind" checked={kind === 'cron'} onChange={() => setKind('cron')} /> By a cron expression</label>
      <label className="beside"><input type="radio" name="kind" checked={kind === 'interval'} onChange={() => setKind('interval')} /> Every so often</label>
      {kind === 'cron' ? (
        <>
          <Field label="Cron expression" required hint={cronInWords(expression) ?? 'Minute, hour, day of month, month, day of week, as in the crontab.'}>
            {(field) => <input {...field} name="cronExpression" className="mono" required maxLength={bounds['cronExpression']?.maxLength} value={expression} spellCheck={false} autoComplete="off" onChange={(event) => setExpression(event.target.value)} />}
          </Field>
          <Field label="Zone" required hint="Of the machine on which the cron runs.">
            {(field) => (
              <>
                <input {...field} name="timezone" required maxLength={bounds['timezone']?.maxLength} list={zones} defaultValue={stored?.timezone ?? myZone} spellCheck={false} />
                <datalist id={zones}>{['UTC', ...Intl.supportedValuesOf('timeZone')].map((zone) => <option key={zone} value={zone} />)}</datalist>
              </>
            )}
          </Field>
        </>
      ) : <Amount name="intervalSeconds" label="Interval" hint="Until the next run, from the start of one that comes in good time, and otherwise from its end." bounds={bounds['intervalSeconds']} value={stored?.intervalSeconds ?? 3600} />}
      {stored && <p className="hint faint">With another schedule the next run is expected from now on, and a run that goes on is left behind.</p>}
    </fieldset>
  );
}

/** A time span as a number and its unit. */
function Amount({ name, label, hint, bounds, value }: { name: string; label: string; hint: string; bounds: Schema | undefined; value: unknown }) {
  const seconds = Number(value ?? bounds?.default ?? 0);
  const [unit, setUnit] = useState(() => units.findLast(([, size]) => seconds > 0 && seconds % size === 0)?.[1] ?? 60);
  const [least, most] = [bounds?.minimum ?? 0, bounds?.maximum];
  return (
    <Field label={label} required hint={<>{hint}{most !== undefined && ` ${exactly(least)} to ${exactly(most)}.`}</>}>
      {(field) => (
        <span className="amount">
          <input {...field} name={name} type="number" required step="any" min={least / unit} max={most === undefined ? undefined : most / unit} defaultValue={seconds / unit} />
          <select name={`${name}Unit`} aria-label={`Unit of ${label}`} value={unit} onChange={(event) => setUnit(Number(event.target.value))}>{units.map(([text, size]) => <option key={text} value={size}>{text}</option>)}</select>
        </span>
      )}
    </Field>
  );
}
