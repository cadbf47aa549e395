SELECT seqno, o.value:customerID::int AS customerID, m.value:menuID::int AS menuID, o.value:qty::int AS qty
FROM `order` o JOIN menu m USING (seqno)
