// What the API's own contract says of a job, read where it is served: forms follow it,
// also for job types that are newer than this page.

export interface Schema {
  $ref?: string;
  allOf?: Schema[];
  oneOf?: Schema[];
  type?: string;
  format?: string;
  enum?: string[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: unknown;
  required?: string[];
  description?: string;
  default?: unknown;
  example?: unknown;
  nullable?: boolean;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  discriminator?: { mapping: Record<string, string> };
}

export interface Contract {
  components: { schemas: Record<string, Schema> };
}

export async function readContract(signal: AbortSignal): Promise<Contract> {
  const response = await fetch('/docs/openapi.json', { signal });
  if (!response.ok) throw new Error(`the contract cannot be read: HTTP ${response.status}`);
  return (await response.json()) as Contract;
}

/** A schema without its references: what stands beside a reference says more than what it names. */
export function resolve(contract: Contract, schema: Schema): Schema {
  const { $ref, allOf, ...own } = schema;
  const named = $ref ? contract.components.schemas[$ref.slice($ref.lastIndexOf('/') + 1)] : undefined;
  const parts = [...(named ? [named] : []), ...(allOf ?? [])].map((part) => resolve(contract, part));
  return Object.assign({}, ...parts, own) as Schema;
}

export function jobTypes(contract: Contract): string[] {
  return Object.keys(contract.components.schemas['JobSpec']?.discriminator?.mapping ?? {});
}

/** What the config of a job type holds. */
export function configOf(contract: Contract, jobType: string): Schema | null {
  const ref = contract.components.schemas['JobSpec']?.discriminator?.mapping[jobType];
  const config = ref ? resolve(contract, { $ref: ref }).properties?.['config'] : undefined;
  return config ? resolve(contract, config) : null;
}

/** A config of a job type with an example of each value that it needs. */
export function exampleOf(contract: Contract, jobType: string): Record<string, unknown> {
  const schema = configOf(contract, jobType);
  return Object.fromEntries((schema?.required ?? []).map((name) => [name, resolve(contract, schema?.properties?.[name] ?? {}).example]));
}
