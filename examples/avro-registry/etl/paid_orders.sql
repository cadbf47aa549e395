-- One row for each order with its payment. Values have the types that their schemas say: `amount` is a decimal there.
SELECT
  seqno,
  o.value:order_id::bigint AS order_id,
  o.value:item::string AS item,
  o.value:ordered_at::timestamp AS ordered_at,
  p.value:amount::decimal(10, 2) AS amount,
  p.value:method::string AS method  -- only the schema's second version has it
FROM orders o JOIN payments p USING (seqno)
