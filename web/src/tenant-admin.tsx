// One tenant, for platform administrators: its limits and use; suspend, resume, delete it.

import { useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, every, must, type Schemas } from './api';
import { can } from './session';
import { TenantUse } from './tenant';
import { Field, FormDialog, Loading, Problem, Title } from './ui';

const route = getRouteApi('/tenants/$id');
type Tenant = Schemas['TenantWithUsage'];
type Verb = 'change' | 'suspend' | 'resume' | 'delete';

export function TenantAdmin() {
  const { id } = route.useParams();
  const queries = useQueryClient();
  const [verb, setVerb] = useState<Verb | null>(null);
  const query = useQuery({ queryKey: ['tenants', 'one', id], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/tenants/{id}', { signal, params: { path: { id } } })), ...every(10) });
  const tenant = query.data;
  const close = (): void => {
    setVerb(null);
    void queries.invalidateQueries({ queryKey: ['tenants'] });
  };
  const gone = tenant?.status === 'deleting' || tenant?.status === 'deleted';
  return (
    <>
      <p><Link to="/tenants" search={{}}>All tenants</Link></p>
      <Title of={tenant?.name ?? 'Tenant'} actions={tenant && !gone && can('tenants:write') && (
        <>
          <button type="button" onClick={() => setVerb('change')}>Change</button>
          {tenant.status === 'suspended' ? <button type="button" onClick={() => setVerb('resume')}>Resume</button> : <button type="button" className="danger" onClick={() => setVerb('suspend')}>Suspend</button>}
          <button type="button" className="danger" onClick={() => setVerb('delete')}>Delete</button>
        </>
      )}>{tenant?.name ?? 'Tenant'}</Title>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="the tenant" />}
      {tenant && <TenantUse tenant={tenant} unset="as configured" />}
      {tenant && verb === 'change' && <Change tenant={tenant} onClose={close} />}
      {tenant && verb === 'suspend' && (
        <FormDialog title={`Suspend ${tenant.name}`} submit="Suspend this tenant" danger onClose={close}
          act={(form) => must(api.POST('/api/v1/scheduler/tenants/{id}/suspend', { params: { path: { id } }, body: { reason: String(form.get('reason')) } }))}>
          <p>Its calls are refused within two seconds. Its {tenant.usage.jobs.toLocaleString('en')} jobs are paused, what waits is cancelled, and what runs is asked to end. Jobs and history stay.</p>
          <Field label="Why" hint="For the record, and for other administrators.">{(field) => <input {...field} name="reason" maxLength={500} autoComplete="off" />}</Field>
        </FormDialog>
      )}
      {tenant && verb === 'resume' && (
        <FormDialog title={`Resume ${tenant.name}`} submit="Resume this tenant" onClose={close} act={() => must(api.POST('/api/v1/scheduler/tenants/{id}/activate', { params: { path: { id } } }))}>
          <p>Its calls are served again, and the jobs that the suspension paused go on within five seconds. Each job’s misfire policy says what happens to the times that were held back.</p>
        </FormDialog>
      )}
      {tenant && verb === 'delete' && (
        <FormDialog title={`Delete ${tenant.name}`} submit="Delete this tenant for good" danger onClose={close}
          act={async (form) => {
            if (String(form.get('name')).trim() !== tenant.name.trim()) throw new Error('This is not the name of the tenant: nothing was deleted.');
            await must(api.DELETE('/api/v1/scheduler/tenants/{id}', { params: { path: { id }, header: { 'If-Match': `"${tenant.version}"` } } }));
          }}>
          <p>Nothing of it runs any more, at once. Half a minute later its {tenant.usage.jobs.toLocaleString('en')} jobs, its history and its secrets begin to be removed. Nobody can bring them back.</p>
          <Field label="Its name, to be sure" required>{(field) => <input {...field} name="name" required autoComplete="off" spellCheck={false} />}</Field>
        </FormDialog>
      )}
    </>
  );
}

/** The limits that are numbers, in the order of the form. */
const numbers = [
  ['maxJobs', 'Jobs', 0], ['maxRunning', 'Executions that run at once', 0], ['maxWaiting', 'Executions that wait', 1], ['maxWaitingPerJob', 'Waiting executions of one job', 1],
  ['maxExecutionsPerDay', 'Executions made in a day (UTC)', 0], ['requestsPerSecond', 'API requests a second', 1], ['minIntervalSeconds', 'Seconds between two scheduled times at least', 1],
  ['maxPayloadBytes', 'Bytes of a request’s body', 1024], ['maxCalendars', 'Calendars', 0], ['maxSecrets', 'Secrets', 0], ['maxApiKeys', 'API keys', 0],
] as const;

function Change({ tenant, onClose }: { tenant: Tenant; onClose: () => void }) {
  const change = async (form: FormData): Promise<void> => {
    const limits: Record<string, unknown> = { ...tenant.limits };
    for (const [name] of numbers) limits[name] = form.get(name) === '' ? null : Number(form.get(name));
    const { name, allowedIps, allowedHosts, allowedOrigins } = tenant;
    const lines = (field: string): string[] => String(form.get(field)).split('\n').map((line) => line.trim()).filter(Boolean);
    await must(api.PUT('/api/v1/scheduler/tenants/{id}', {
      params: { path: { id: tenant.id }, header: { 'If-Match': `"${tenant.version}"` } },
      body: { name: String(form.get('name') ?? name), limits: limits as Schemas['TenantLimits'], allowedIps: form.has('ips') ? lines('ips') : allowedIps, allowedHosts: form.has('hosts') ? lines('hosts') : allowedHosts, allowedOrigins },
    }));
  };
  return (
    <FormDialog title={`Change ${tenant.name}`} submit="Save the tenant" act={change} onClose={onClose}>
      <Field label="Name" required>{(field) => <input {...field} name="name" defaultValue={tenant.name} required maxLength={200} autoComplete="off" />}</Field>
      <fieldset>
        <legend>Limits</legend>
        <p className="hint faint">An empty field means what the installation is configured with.</p>
        {numbers.map(([name, label, least]) => (
          <Field key={name} label={label}>{(field) => <input {...field} name={name} type="number" min={least} step={1} defaultValue={tenant.limits[name] ?? ''} />}</Field>
        ))}
      </fieldset>
      <Field label="Calls come from" hint="Networks such as 203.0.113.0/24, one a line; none: anywhere.">{(field) => <textarea {...field} name="ips" rows={2} defaultValue={tenant.allowedIps.join('\n')} spellCheck={false} />}</Field>
      <Field label="Jobs may call" hint="Hosts such as *.example.com, one a line; none: any.">{(field) => <textarea {...field} name="hosts" rows={2} defaultValue={tenant.allowedHosts.join('\n')} spellCheck={false} />}</Field>
    </FormDialog>
  );
}
