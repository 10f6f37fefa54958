// The form of a notification, and the secret that a new one has.

import { useState } from 'react';
import { api, must, type Schemas } from './api';
import { myZone } from './time';
import { Dialog, Field, FormDialog } from './ui';

export type Notification = Schemas['Notification'];

const kinds = ['webhook', 'slack', 'email'] as const;
/** What each event means; one that is newer than this page is shown by its name where a notification has it. */
const events: Record<string, string> = {
  'job.failed': 'a job fails that did not fail before',
  'job.recovered': 'a job that failed completes again',
  'job.disabled': 'a job becomes inactive by itself',
  'job.not_run_by': 'a job with "complete within" was not completed in time',
  'execution.failed': 'any execution fails for good',
  'execution.missed': 'scheduled times did not run, after an outage or a pause',
  'execution.skipped': 'one did not run because another one still did',
  'execution.slow': 'an execution completes that took far longer than usual',
  'monitor.down': 'a monitor goes down: a cron elsewhere failed, or did not run',
  'monitor.recovered': 'a monitor that was down is ok again',
};

const lines = (form: FormData, name: string): string[] => String(form.get(name) ?? '').split('\n').map((line) => line.trim()).filter(Boolean);

function specOf(form: FormData, kind: Schemas['NotificationKind'], stored: Notification | null): Schemas['NotificationSpec'] {
  const [from, to] = [String(form.get('quietFrom')), String(form.get('quietTo'))];
  return {
    name: String(form.get('name')), kind, events: form.getAll('event') as Schemas['NotificationEventType'][],
    url: kind === 'email' ? '' : String(form.get('url')), to: kind === 'email' ? lines(form, 'to') : [],
    tags: lines(form, 'tags'), jobIds: lines(form, 'jobIds'), groupMinutes: Number(form.get('groupMinutes') || 0), enabled: stored?.enabled ?? true,
    ...((from || to) && { quietHours: { from, to, timezone: String(form.get('timezone')) } }),
  };
}

export function NotificationForm({ stored, onClose, onStored }: { stored: Notification | null; onClose: () => void; onStored: (stored: Notification | Schemas['NewNotification']) => void }) {
  const [kind, setKind] = useState<Schemas['NotificationKind']>(stored?.kind ?? 'webhook');
  const put = async (form: FormData): Promise<void> => {
    const body = specOf(form, kind, stored);
    onStored(stored
      ? await must(api.PUT('/api/v1/scheduler/notifications/{id}', { params: { path: { id: stored.id }, header: { 'If-Match': `"${stored.version}"` } }, body }))
      : await must(api.POST('/api/v1/scheduler/notifications', { body })));
  };
  return (
    <FormDialog title={stored ? `Change ${stored.name}` : 'New notification'} submit={stored ? 'Save the notification' : 'Create the notification'} act={put} onClose={onClose}>
      <Field label="Name" required>{(field) => <input {...field} name="name" required maxLength={200} defaultValue={stored?.name ?? ''} autoComplete="off" />}</Field>
      <Field label="Kind" hint={stored ? 'The kind stays: make a new notification for another.' : undefined}>
        {(field) => <select {...field} value={kind} disabled={stored !== null} onChange={(event) => setKind(kinds.find((one) => one === event.target.value) ?? 'webhook')}>{kinds.map((one) => <option key={one}>{one}</option>)}</select>}
      </Field>
      {kind === 'email'
        ? <Field label="Addresses, one a line" required>{(field) => <textarea {...field} name="to" rows={2} required defaultValue={stored?.to.join('\n') ?? ''} />}</Field>
        : <Field label="URL" required hint={kind === 'slack' ? 'It is secret: it is shown without its path. Leave it as it is shown, and it is kept.' : 'Messages are signed; the secret is shown once.'}>{(field) => <input {...field} name="url" required maxLength={2048} defaultValue={stored?.url ?? ''} spellCheck={false} />}</Field>}
      <fieldset>
        <legend>Tell when</legend>
        {[...new Set([...Object.keys(events), ...(stored?.events ?? [])])].map((event) => (
          <p key={event}><label><input type="checkbox" name="event" value={event} defaultChecked={stored ? stored.events.some((one) => one === event) : event === 'job.failed' || event === 'job.recovered'} /> {events[event]} <code>{event}</code></label></p>
        ))}
      </fieldset>
      <details open={Boolean(stored && (stored.tags.length || stored.jobIds.length || stored.quietHours || stored.groupMinutes))}>
        <summary>Only some jobs, quiet hours, fewer messages</summary>
        <Field label="Only jobs with one of these tags, one a line">{(field) => <textarea {...field} name="tags" rows={2} defaultValue={stored?.tags.join('\n') ?? ''} />}</Field>
        <Field label="Only jobs with these ids, one a line">{(field) => <textarea {...field} name="jobIds" rows={2} defaultValue={stored?.jobIds.join('\n') ?? ''} spellCheck={false} />}</Field>
        <Field label="At most one message in so many minutes" hint="0: a message for each event.">{(field) => <input {...field} name="groupMinutes" type="number" min={0} max={1440} defaultValue={stored?.groupMinutes ?? 0} />}</Field>
        <Field label="Quiet from" hint="What happens meanwhile is told together at the end.">{(field) => <input {...field} name="quietFrom" type="time" defaultValue={stored?.quietHours?.from ?? ''} />}</Field>
        <Field label="Quiet until">{(field) => <input {...field} name="quietTo" type="time" defaultValue={stored?.quietHours?.to ?? ''} />}</Field>
        <Field label="Zone of the quiet hours">{(field) => <input {...field} name="timezone" maxLength={64} defaultValue={stored?.quietHours?.timezone ?? myZone} />}</Field>
      </details>
    </FormDialog>
  );
}

/** The secret of a webhook, the one time that it is shown. */
export function Shown({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <Dialog title="The secret of its messages" onClose={onClose}>
      <p>It is shown this once. The receiver checks with it that messages are ours.</p>
      <pre tabIndex={0} role="region" aria-label="The secret">{secret}</pre>
      <div className="actions">
        <button type="button" className="main" onClick={() => void navigator.clipboard?.writeText(secret)}>Copy</button>
        <button type="button" onClick={onClose}>Close</button>
      </div>
    </Dialog>
  );
}
