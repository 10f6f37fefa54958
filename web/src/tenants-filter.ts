// The states of tenants, as they stand in an address.

export const tenantStatuses = ['active', 'suspended', 'deleting', 'deleted'] as const;

export function tenantFilters(search: Record<string, unknown>): { status?: (typeof tenantStatuses)[number] | undefined } {
  return { status: tenantStatuses.find((status) => status === search['status']) };
}
