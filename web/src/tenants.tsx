// All tenants of the installation, for platform administrators.

import { useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, must } from './api';
import { usePages } from './pages';
import { can } from './session';
import { tenantStatuses } from './tenants-filter';
import { Empty, Field, FormDialog, Loading, More, Problem, Rows, Status, Time, Title } from './ui';

const route = getRouteApi('/tenants');

export function Tenants() {
  const { status } = route.useSearch();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [making, setMaking] = useState(false);
  const { query, items } = usePages(['tenants', status], (page, signal) => must(api.GET('/api/v1/scheduler/tenants', { signal, params: { query: { ...page, ...(status && { status }) } } })));
  return (
    <>
      <Title of="Tenants" actions={can('tenants:write') && <button type="button" className="main" onClick={() => setMaking(true)}>New tenant</button>}>Tenants</Title>
      <search className="bar">
        <label>Status
          <select value={status ?? ''} onChange={(event) => void navigate({ to: '/tenants', search: { status: tenantStatuses.find((one) => one === event.target.value) }, replace: true })}>
            <option value="">Any</option>
            {tenantStatuses.map((one) => <option key={one}>{one}</option>)}
          </select>
        </label>
      </search>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="tenants" />}
      {query.data && items.length === 0 && (status ? <Empty title="No tenant has this status." /> : <Empty title="There are no tenants yet."><p>A tenant appears here when somebody creates it, or at its first call where the installation admits that.</p></Empty>)}
      {items.length > 0 && (
        <Rows label="Tenants" head={['Name', 'Status', 'Why', 'Created', 'Id']}>
          {items.map((tenant) => (
            <tr key={tenant.id}>
              <td><Link to="/tenants/$id" params={{ id: tenant.id }}><bdi>{tenant.name}</bdi></Link></td>
              <td><Status of={tenant.status} /></td>
              <td><bdi>{tenant.statusReason}</bdi></td>
              <td><Time at={tenant.createdAt} /></td>
              <td><code>{tenant.id}</code></td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="More tenants" />
      {making && (
        <FormDialog title="New tenant" submit="Create the tenant" onClose={() => setMaking(false)}
          act={async (form) => {
            const id = String(form.get('id')).trim();
            const made = await must(api.POST('/api/v1/scheduler/tenants', { body: { name: String(form.get('name')), ...(id && { id }) } }));
            void queries.invalidateQueries({ queryKey: ['tenants'] });
            void navigate({ to: '/tenants/$id', params: { id: made.id } });
          }}>
          <Field label="Name" required hint="For people.">{(field) => <input {...field} name="name" required maxLength={200} autoComplete="off" />}</Field>
          <Field label="Id" hint="As your auth service names the tenant in its tokens (tenant_id). Empty: a new one.">{(field) => <input {...field} name="id" autoComplete="off" spellCheck={false} />}</Field>
        </FormDialog>
      )}
    </>
  );
}
