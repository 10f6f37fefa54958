// What a message of a notification may have come to.

export const deliveryStatuses = ['pending', 'delivered', 'failed'] as const;
