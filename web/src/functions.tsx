// Functions: the WebAssembly modules that jobs of type wasm run, and their versions.

import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, must, type Schemas } from './api';
import { usePages } from './pages';
import { can } from './session';
import { Dialog, Empty, Field, FormDialog, Loading, More, Problem, Rows, Time, Title } from './ui';

type Function = Schemas['Function'];
type Asked = { upload: Function | null } | { versions: Function } | { remove: Function };

const size = (bytes: number): string => (bytes < 1 << 20 ? `${Math.ceil(bytes / 1024).toLocaleString('en')} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`);

export function Functions() {
  const [asked, setAsked] = useState<Asked | null>(null);
  const queries = useQueryClient();
  const { query, items } = usePages(['functions'], (page, signal) => must(api.GET('/api/v1/scheduler/functions', { signal, params: { query: page } })));
  const close = (): void => {
    setAsked(null);
    void queries.invalidateQueries({ queryKey: ['functions'] });
  };
  return (
    <>
      <Title of="Functions" actions={can('functions:write') && <button type="button" className="main" onClick={() => setAsked({ upload: null })}>Upload a module</button>}>Functions</Title>
      <p className="faint">Jobs of type <code>wasm</code> run them by name: the newest version, or the one that the job names.</p>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="functions" />}
      {query.data && items.length === 0 && <Empty title="There are no functions yet."><p>A function is a WebAssembly module for WASI preview 1, of at most 8 MiB.</p></Empty>}
      {items.length > 0 && (
        <Rows label="Functions" head={['Name', 'Version', 'Size', 'Uploaded', '.Actions']}>
          {items.map((one) => (
            <tr key={one.name}>
              <td><code>{one.name}</code></td>
              <td>{one.version}</td>
              <td>{size(one.sizeBytes)}</td>
              <td><Time at={one.updatedAt} /> by <bdi>{one.updatedBy}</bdi></td>
              <td>
                <div className="actions">
                  <button type="button" onClick={() => setAsked({ versions: one })}>Versions<span className="unseen"> of {one.name}</span></button>
                  {can('functions:write') && <button type="button" onClick={() => setAsked({ upload: one })}>New version<span className="unseen"> of {one.name}</span></button>}
                  {can('functions:write') && <button type="button" className="danger" onClick={() => setAsked({ remove: one })}>Delete<span className="unseen"> {one.name}</span></button>}
                </div>
              </td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="More functions" />
      {asked && 'upload' in asked && <Upload of={asked.upload} onClose={close} />}
      {asked && 'versions' in asked && <Versions name={asked.versions.name} onClose={close} />}
      {asked && 'remove' in asked && (
        <FormDialog title={`Delete the function ${asked.remove.name}`} submit="Delete this function" danger onClose={close}
          act={() => must(api.DELETE('/api/v1/scheduler/functions/{name}', { params: { path: { name: asked.remove.name } } }) as Promise<{ response: Response }>)}>
          <p>All its versions go. A function that jobs run is refused until they no longer do.</p>
        </FormDialog>
      )}
    </>
  );
}

function Upload({ of, onClose }: { of: Function | null; onClose: () => void }) {
  const put = (form: FormData): Promise<unknown> =>
    must(api.PUT('/api/v1/scheduler/functions/{name}', {
      params: { path: { name: of?.name ?? String(form.get('name')) } },
      headers: { 'Content-Type': 'application/wasm' },
      body: form.get('module') as unknown as string, // a file, sent as it is
      bodySerializer: (body) => body,
    }));
  return (
    <FormDialog title={of ? `A new version of ${of.name}` : 'Upload a module'} submit="Upload the module" act={put} onClose={onClose}>
      {!of && <Field label="Name" required hint="A function that exists gets a further version.">{(field) => <input {...field} name="name" required maxLength={64} spellCheck={false} autoComplete="off" />}</Field>}
      <Field label="Module" required hint="A core module for WASI preview 1 with a function _start. It is compiled before it is stored.">{(field) => <input {...field} name="module" type="file" accept=".wasm,application/wasm" required />}</Field>
    </FormDialog>
  );
}

function Versions({ name, onClose }: { name: string; onClose: () => void }) {
  const query = useQuery({ queryKey: ['function', name], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/functions/{name}', { signal, params: { path: { name } } })) });
  return (
    <Dialog title={`Versions of ${name}`} onClose={onClose}>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="versions" />}
      {query.data && (
        <Rows label="Versions" head={['Version', 'Size', 'Uploaded', 'SHA-256']}>
          {(query.data.versions ?? []).map((one) => <tr key={one.version}><td>{one.version}</td><td>{size(one.sizeBytes)}</td><td><Time at={one.createdAt} /> by <bdi>{one.createdBy}</bdi></td><td><code>{one.digest}</code></td></tr>)}
        </Rows>
      )}
      <div className="actions"><button type="button" onClick={onClose}>Close</button></div>
    </Dialog>
  );
}
