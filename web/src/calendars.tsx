// Calendars: days that jobs leave out, or are bound to.

import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, must, newKey, type Schemas } from './api';
import { usePages } from './pages';
import { can } from './session';
import { myZone } from './time';
import { Empty, Field, FormDialog, Loading, More, Problem, Rows, Time, Title } from './ui';

type Summary = Schemas['CalendarSummary'];
type Asked = { make: true } | { edit: string } | { remove: Summary };

export function Calendars() {
  const [asked, setAsked] = useState<Asked | null>(null);
  const queries = useQueryClient();
  const { query, items } = usePages(['calendars'], (page, signal) => must(api.GET('/api/v1/scheduler/calendars', { signal, params: { query: page } })));
  const close = (): void => {
    setAsked(null);
    void queries.invalidateQueries({ queryKey: ['calendars'] });
  };
  return (
    <>
      <Title of="Calendars" actions={can('jobs:write') && <button type="button" className="main" onClick={() => setAsked({ make: true })}>New calendar</button>}>Calendars</Title>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="calendars" />}
      {query.data && items.length === 0 && <Empty title="There are no calendars yet."><p>A calendar holds days, such as holidays, that jobs leave out or are bound to.</p></Empty>}
      {items.length > 0 && (
        <Rows label="Calendars" head={['Name', 'Id', 'Zone', 'Days', 'Changed', '.Actions']}>
          {items.map((calendar) => (
            <tr key={calendar.id}>
              <td><bdi>{calendar.name}</bdi>{calendar.description && <div className="faint"><bdi>{calendar.description}</bdi></div>}</td>
              <td><code>{calendar.id}</code></td>
              <td>{calendar.timezone}</td>
              <td>{calendar.dayCount}</td>
              <td><Time at={calendar.updatedAt} zone={calendar.timezone} /></td>
              <td><div className="actions"><button type="button" onClick={() => setAsked({ edit: calendar.id })}>{can('jobs:write') ? 'Edit' : 'Show'}<span className="unseen"> {calendar.name}</span></button>{can('jobs:write') && <button type="button" className="danger" onClick={() => setAsked({ remove: calendar })}>Delete<span className="unseen"> {calendar.name}</span></button>}</div></td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="More calendars" />
      {asked && 'make' in asked && <Edit calendar={null} onClose={close} />}
      {asked && 'edit' in asked && <Stored id={asked.edit} onClose={close} />}
      {asked && 'remove' in asked && (
        <FormDialog title={`Delete the calendar ${asked.remove.name}`} submit="Delete this calendar" danger onClose={close}
          act={() => must(api.DELETE('/api/v1/scheduler/calendars/{id}', { params: { path: { id: asked.remove.id }, header: { 'If-Match': `"${asked.remove.version}"` } } }) as Promise<{ response: Response }>)}>
          <p>A calendar that jobs name is refused until they no longer do.</p>
        </FormDialog>
      )}
    </>
  );
}

function Stored({ id, onClose }: { id: string; onClose: () => void }) {
  const query = useQuery({ queryKey: ['calendar', id], gcTime: 0, staleTime: Infinity, refetchOnWindowFocus: false, queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/calendars/{id}', { signal, params: { path: { id } } })) });
  if (query.error) return <Problem error={query.error} />;
  return query.data ? <Edit calendar={query.data} onClose={onClose} /> : null;
}

/** A day as a line: `2026-12-24..2026-12-26 yearly Christmas`. */
function lineOf(day: Schemas['CalendarDay']): string {
  return [day.end && day.end !== day.start ? `${day.start}..${day.end}` : day.start, day.yearly ? 'yearly' : '', day.name ?? ''].filter(Boolean).join(' ');
}

function dayOf(line: string): Schemas['CalendarDay'] {
  const [period = '', ...words] = line.trim().split(/\s+/);
  const [start = '', end] = period.split('..');
  const yearly = words[0] === 'yearly';
  const name = words.slice(yearly ? 1 : 0).join(' ');
  return { start, ...(end && { end }), yearly, ...(name && { name }) };
}

function Edit({ calendar, onClose }: { calendar: Schemas['Calendar'] | null; onClose: () => void }) {
  const [key] = useState(newKey);
  const save = (form: FormData): Promise<unknown> => {
    const body = {
      name: String(form.get('name')), description: String(form.get('description')), timezone: String(form.get('timezone')),
      days: String(form.get('days')).split('\n').filter((line) => line.trim() !== '').map(dayOf),
    };
    return calendar
      ? must(api.PUT('/api/v1/scheduler/calendars/{id}', { params: { path: { id: calendar.id }, header: { 'If-Match': `"${calendar.version}"` } }, body }))
      : must(api.POST('/api/v1/scheduler/calendars', { params: { header: { 'Idempotency-Key': key } }, body }));
  };
  return (
    <FormDialog title={calendar ? `Calendar ${calendar.name}` : 'New calendar'} submit={calendar ? 'Save the calendar' : 'Create the calendar'} act={save} onClose={onClose}>
      <Field label="Name" required>{(field) => <input {...field} name="name" required maxLength={200} defaultValue={calendar?.name ?? ''} />}</Field>
      <Field label="Description">{(field) => <input {...field} name="description" maxLength={2000} defaultValue={calendar?.description ?? ''} />}</Field>
      <Field label="Zone" hint="On whose clock the days are.">{(field) => <input {...field} name="timezone" required defaultValue={calendar?.timezone ?? myZone} spellCheck={false} />}</Field>
      <Field label="Days, one a line" hint={<>A date, or the first and the last with two dots between; then <code>yearly</code> where it comes each year; then a name: <code>2026-12-24..2026-12-26 yearly Christmas</code>. Times may follow a date: <code>2026-12-24T18:00</code>.</>}>
        {(field) => <textarea {...field} name="days" rows={10} defaultValue={calendar?.days.map(lineOf).join('\n') ?? ''} spellCheck={false} />}
      </Field>
    </FormDialog>
  );
}
