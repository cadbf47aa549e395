-- The events of stock, as those of orders.
SELECT
  seqno,
  value:event_id::bigint AS _order,
  value:aggregate_id::string AS aggregate_id,
  value:event_type::string AS event_type,
  value:payload AS payload
FROM outbox
WHERE value:aggregate_type::string = 'stock'
