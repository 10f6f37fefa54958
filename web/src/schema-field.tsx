// A form field made of what the contract says of a value.

import { useState, type ReactNode } from 'react';
import { resolve, type Contract, type Schema } from './contract';
import { Field } from './ui';

export interface FormContext {
  contract: Contract;
  /** The API's reason why what stands at a path is wrong. */
  errorAt: (path: string) => string | undefined;
}

interface Props extends FormContext {
  path: string;
  schema: Schema;
  value: unknown;
  required?: boolean;
  set: (value: unknown) => void;
}

/** `maxRetryDelayMs` as people read it: "Max retry delay ms". */
export function labelOf(path: string): string {
  const words = path.slice(path.lastIndexOf('.') + 1).replace(/([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`).replace(/\burl\b/, 'URL');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Text of the contract, with its code as code. */
export function Prose({ text }: { text: string }): ReactNode {
  return text.split('`').map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part));
}

export function SchemaField(props: Props) {
  const schema = resolve(props.contract, props.schema);
  if (schema.type === 'object' && schema.properties) return <Group {...props} schema={schema} />;
  const hint = schema.description && <><Prose text={schema.description} />{schema.default !== undefined && <> Default: <code>{JSON.stringify(schema.default)}</code>.</>}</>;
  return (
    <Field label={labelOf(props.path)} required={props.required ?? false} error={props.errorAt(props.path)} hint={hint}>
      {(field) => <Input {...props} schema={schema} field={field} />}
    </Field>
  );
}

function Group({ path, schema, value, set, ...context }: Props) {
  const current = (value ?? {}) as Record<string, unknown>;
  return (
    <fieldset>
      <legend>{labelOf(path)}</legend>
      {Object.entries(schema.properties ?? {}).map(([name, one]) => (
        <SchemaField key={name} {...context} path={`${path}.${name}`} schema={one} value={current[name]} required={schema.required?.includes(name) ?? false} set={(next) => set(put(current, name, next))} />
      ))}
    </fieldset>
  );
}

/** An object with one value changed; undefined takes it out. */
export function put(object: Record<string, unknown>, name: string, value: unknown): Record<string, unknown> {
  const { [name]: _, ...rest } = object;
  return value === undefined ? rest : { ...rest, [name]: value };
}

/** A text that may be this long gets several lines. */
const manyChars = 2000;

function Input({ schema, value, set, field }: Props & { field: { id: string } }) {
  if (schema.enum && schema.type === 'string') {
    return (
      <select {...field} value={String(value ?? '')} onChange={(event) => set(event.target.value || undefined)}>
        <option value="">{schema.default === undefined ? '–' : `default: ${String(schema.default)}`}</option>
        {schema.enum.map((one) => <option key={one} value={one}>{one}</option>)}
      </select>
    );
  }
  if (schema.type === 'boolean') return <input {...field} type="checkbox" checked={Boolean(value ?? schema.default)} onChange={(event) => set(event.target.checked)} />;
  if (schema.type === 'integer' || schema.type === 'number') {
    return <input {...field} inputMode="decimal" value={value === undefined || value === null ? '' : String(value)} placeholder={schema.default === undefined ? '' : String(schema.default)} onChange={(event) => set(numberOf(event.target.value))} />;
  }
  if (schema.type === 'string' && schema.format !== 'uri' && (schema.maxLength ?? 0) >= manyChars) {
    return <textarea {...field} rows={Math.min(20, Math.max(3, String(value ?? '').split('\n').length))} value={String(value ?? '')} placeholder={typeof schema.example === 'string' ? schema.example : ''} spellCheck={false} onChange={(event) => set(event.target.value === '' ? undefined : event.target.value)} />;
  }
  if (schema.type === 'string') return <input {...field} value={String(value ?? '')} placeholder={typeof schema.example === 'string' ? schema.example : ''} spellCheck={false} onChange={(event) => set(event.target.value === '' ? undefined : event.target.value)} />;
  if (schema.type === 'array' && schema.items?.type === 'string' && !schema.items.enum) {
    return <Lines value={value} set={set} field={field} />;
  }
  return <JsonInput value={value} set={set} field={field} schema={schema} />;
}

/** What is no number is sent as it was typed: the API says what would be right. */
function numberOf(typed: string): unknown {
  if (typed.trim() === '') return undefined;
  const number = Number(typed);
  return Number.isNaN(number) ? typed : number;
}

function Lines({ value, set, field }: { value: unknown; set: (value: unknown) => void; field: { id: string } }) {
  const [text, setText] = useState(() => ((value as string[] | undefined) ?? []).join('\n'));
  return (
    <textarea {...field} rows={3} value={text} placeholder="one a line" spellCheck={false}
      onChange={(event) => {
        setText(event.target.value);
        const lines = event.target.value.split('\n').map((line) => line.trim()).filter(Boolean);
        set(lines.length ? lines : undefined);
      }} />
  );
}

/** JSON, or text where it is none: the API says whether that is allowed. */
function JsonInput({ value, set, field, schema: { example, oneOf } }: { value: unknown; set: (value: unknown) => void; field: { id: string }; schema: Schema }) {
  const [text, setText] = useState(() => (value === undefined || value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value, null, 2)));
  return (
    <textarea {...field} rows={Math.min(12, Math.max(oneOf ? 1 : 3, text.split('\n').length))} value={text} placeholder={example === undefined ? '' : JSON.stringify(example)} spellCheck={false}
      onChange={(event) => {
        setText(event.target.value);
        try {
          set(event.target.value.trim() === '' ? undefined : JSON.parse(event.target.value));
        } catch {
          set(event.target.value);
        }
      }} />
  );
}
