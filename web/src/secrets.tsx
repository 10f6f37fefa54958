// Secrets: their names, never their values.

import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, must, type Schemas } from './api';
import { usePages } from './pages';
import { can } from './session';
import { Empty, Field, FormDialog, Loading, More, Problem, Rows, Time, Title } from './ui';

type Secret = Schemas['Secret'];

export function Secrets() {
  const [asked, setAsked] = useState<{ put: Secret | null } | { remove: Secret } | null>(null);
  const queries = useQueryClient();
  const { query, items } = usePages(['secrets'], (page, signal) => must(api.GET('/api/v1/scheduler/secrets', { signal, params: { query: page } })));
  const close = (): void => {
    setAsked(null);
    void queries.invalidateQueries({ queryKey: ['secrets'] });
  };
  return (
    <>
      <Title of="Secrets" actions={can('secrets:write') && <button type="button" className="main" onClick={() => setAsked({ put: null })}>New secret</button>}>Secrets</Title>
      <p className="faint">Jobs send them as <code>{'{{secret:name}}'}</code>. Nobody reads a value, here or by the API.</p>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="secrets" />}
      {query.data && items.length === 0 && <Empty title="There are no secrets yet." />}
      {items.length > 0 && (
        <Rows label="Secrets" head={['Name', 'Description', 'Version', 'Changed', '.Actions']}>
          {items.map((secret) => (
            <tr key={secret.name}>
              <td><code>{secret.name}</code></td>
              <td><bdi>{secret.description}</bdi></td>
              <td>{secret.version}</td>
              <td><Time at={secret.updatedAt} /> by {secret.updatedBy}</td>
              <td>{can('secrets:write') && <div className="actions"><button type="button" onClick={() => setAsked({ put: secret })}>Replace<span className="unseen"> {secret.name}</span></button><button type="button" className="danger" onClick={() => setAsked({ remove: secret })}>Delete<span className="unseen"> {secret.name}</span></button></div>}</td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="More secrets" />
      {asked && 'put' in asked && <Put secret={asked.put} onClose={close} />}
      {asked && 'remove' in asked && (
        <FormDialog title={`Delete the secret ${asked.remove.name}`} submit="Delete this secret" danger onClose={close}
          act={() => must(api.DELETE('/api/v1/scheduler/secrets/{name}', { params: { path: { name: asked.remove.name } } }) as Promise<{ response: Response }>)}>
          <p>A secret that jobs refer to is refused until they no longer do. What still waits of an older definition and refers to it fails.</p>
        </FormDialog>
      )}
    </>
  );
}

function Put({ secret, onClose }: { secret: Secret | null; onClose: () => void }) {
  const put = (form: FormData): Promise<unknown> => {
    const description = String(form.get('description'));
    return must(api.PUT('/api/v1/scheduler/secrets/{name}', {
      params: { path: { name: secret?.name ?? String(form.get('name')) } },
      body: { value: String(form.get('value')), ...(description && { description }) },
    }));
  };
  return (
    <FormDialog title={secret ? `Replace the value of ${secret.name}` : 'New secret'} submit={secret ? 'Replace the value' : 'Keep the secret'} act={put} onClose={onClose}>
      {!secret && <Field label="Name" required hint="Letters, digits, _, . and -. A name that exists gets a new value.">{(field) => <input {...field} name="name" required maxLength={64} spellCheck={false} autoComplete="off" />}</Field>}
      <Field label="Value" required hint="The next attempt of each job that refers to it uses it.">{(field) => <input {...field} name="value" type="password" required autoComplete="new-password" />}</Field>
      <Field label="Description">{(field) => <input {...field} name="description" maxLength={200} defaultValue={secret?.description ?? ''} />}</Field>
    </FormDialog>
  );
}
